// Threads that copy and are still awake when the next copy comes. They do other work in pieces, too,
// and know nothing of Python.
//
//     target    | piece 0  | piece 1  | piece 2     | piece 3  |
//     taken by    thread 0   thread 1   who waits     thread 0
//
// Pieces are taken in their order, by the threads and by whoever waits for them. A thread without
// work looks for some for SPIN, where the last came within LONG_SPIN of what was before it for so long, and
// then sleeps: on a virtual machine it takes 0.1 ms to wake, as long as one thread takes for 1.3 MB. No
// signal reaches the threads. A child of fork has none.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace staging {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds SPIN{200}, LONG_SPIN{400};
constexpr int LOOKS = 32;  // Between two looks at the clock.
constexpr size_t PIECE_BYTES = 1 << 17, SMALL_PIECE_BYTES = 1 << 15;
constexpr size_t SMALL_BYTES = 1 << 19;  // Of copies that go in small pieces, so that there are enough for all.

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Whether something is so before the time is over.
template <typename Condition>
bool spin_until(Condition is_so, Clock::duration longest = SPIN) {
    Clock::time_point end = Clock::now() + longest;
    do {
        for (int i = 0; i < LOOKS; i++, pause())
            if (is_so()) return true;
        std::this_thread::yield();  // To whoever has something to do on this core.
    } while (Clock::now() < end);
    return false;
}

inline size_t pieces_of(size_t num_bytes, size_t piece_bytes = PIECE_BYTES) {
    return (num_bytes + piece_bytes - 1) / piece_bytes;
}

// Of a copy of so many bytes.
inline size_t piece_bytes_of(size_t num_bytes) { return num_bytes <= SMALL_BYTES ? SMALL_PIECE_BYTES : PIECE_BYTES; }

// What is done in pieces, by any thread each. Whoever has done one says so last of all, and lets go
// of the job.
class Job {
   public:
    const size_t num_pieces;
    size_t next = 0;  // The first piece that nobody has taken.

    explicit Job(size_t pieces) : num_pieces(pieces), is_done_(pieces) {}
    virtual ~Job() = default;

    bool has(size_t pieces) const {
        auto first = is_done_.begin();
        return std::all_of(first, first + static_cast<ptrdiff_t>(pieces), [](auto& done) { return done.load(); });
    }
    void run(size_t piece) {
        work(piece);
        is_done_[piece].store(true);
    }

   private:
    virtual void work(size_t piece) = 0;

    std::vector<std::atomic<bool>> is_done_;
};

// Copies so many bytes to a target.
struct CopyJob : Job {
    char* const target;
    const size_t num_bytes, piece_bytes;
    std::atomic<bool> is_wrong{false};  // What was to be copied is something else; the target is not complete.

    CopyJob(void* to, size_t size)
        : Job(pieces_of(size, piece_bytes_of(size))), target(static_cast<char*>(to)), num_bytes(size),
          piece_bytes(piece_bytes_of(size)) {}

    // From its beginning to its last piece so far.
    double seconds() const { return std::chrono::duration<double>(Clock::duration(taken_)).count(); }

   private:
    void work(size_t piece) final {
        size_t first = piece * piece_bytes;
        copy(first, std::min(first + piece_bytes, num_bytes));
        taken_.store((Clock::now() - begin_).count());
    }
    // What belongs at first <= place < end of the target.
    virtual void copy(size_t first, size_t end) = 0;

    const Clock::time_point begin_ = Clock::now();
    std::atomic<Clock::rep> taken_{0};
};

// Copies bytes that lie in one piece.
struct BytesJob final : CopyJob {
    const char* const source;

    BytesJob(void* to, const void* from, size_t size) : CopyJob(to, size), source(static_cast<const char*>(from)) {}

   private:
    void copy(size_t first, size_t end) override { std::memcpy(target + first, source + first, end - first); }
};

// The threads of one process and what they have to do. Never freed: copies may know them for longer.
class Threads {
   public:
    explicit Threads(int num_threads) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            for (int i = 0; i < num_threads; i++) {
                threads_.emplace_back(&Threads::work, this);
                pthread_setname_np(threads_.back().native_handle(), ("staging-" + std::to_string(i)).c_str());
            }
        } catch (const std::system_error&) {
            // There may be no more threads: those that are there do, and whoever waits.
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    bool are_here() const { return process_ == getpid(); }

    void add(Job* job) {
        bool sleep;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            is_busy_ = Clock::now() - idle_since_ < LONG_SPIN;
            jobs_.push_back(job);
            has_jobs_ = true;
            sleep = num_asleep_ > 0;
        }
        if (sleep) awake_.notify_all();
    }

    // Returns when the first pieces of a job are done; does those that nobody has taken.
    void finish(Job* job, size_t pieces) {
        for (size_t piece; take(job, pieces, &piece);) run(job, piece);
        if (spin_until([&] { return job->has(pieces); })) return;
        std::unique_lock<std::mutex> lock(mutex_);
        num_waiting_++;
        done_.wait(lock, [&] { return job->has(pieces); });
        num_waiting_--;
    }

    void close() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            is_closing_ = true;
        }
        awake_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

   private:
    void work() {
        Job* job;
        size_t piece;
        while (true) {
            bool is_last = is_closing_;
            while (take_any(&job, &piece)) run(job, piece);
            if (is_last) return;
            wait_for_jobs();
        }
    }

    void wait_for_jobs() {
        auto is_over = [&] { return has_jobs_ || is_closing_; };
        if (spin_until(is_over, is_busy_ ? LONG_SPIN : SPIN)) return;
        std::unique_lock<std::mutex> lock(mutex_);
        num_asleep_++;
        awake_.wait(lock, is_over);
        num_asleep_--;
    }

    void run(Job* job, size_t piece) {
        job->run(piece);
        if (num_waiting_ == 0) return;
        std::lock_guard<std::mutex> lock(mutex_);
        done_.notify_all();
    }

    // A piece of a job below `pieces`; false where all are taken.
    bool take(Job* job, size_t pieces, size_t* piece) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (job->next >= pieces) return false;
        *piece = next_of(job);
        return true;
    }

    // A piece of the first job; false where there is none.
    bool take_any(Job** job, size_t* piece) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (jobs_.empty()) return false;
        *job = jobs_.front();
        *piece = next_of(*job);
        return true;
    }

    size_t next_of(Job* job) {
        size_t piece = job->next++;
        if (job->next == job->num_pieces) jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
        has_jobs_ = !jobs_.empty();
        if (!has_jobs_) idle_since_ = Clock::now();
        return piece;
    }

    const pid_t process_ = getpid();
    std::mutex mutex_;  // Of all that is not atomic, and of every job's `next`.
    std::condition_variable awake_, done_;
    std::deque<Job*> jobs_;  // Those of which a piece is left to take.
    Clock::time_point idle_since_{};  // When the last piece was taken.
    std::atomic<bool> has_jobs_{false}, is_closing_{false};
    std::atomic<bool> is_busy_{false};  // The last job came soon behind the one before it.
    std::atomic<int> num_waiting_{0};
    int num_asleep_ = 0;
    std::vector<std::thread> threads_;
};

}  // namespace staging
