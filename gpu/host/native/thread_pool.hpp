// A pool of threads that copy in pieces, and that poll for a while for the next copy. Independent of Python.
//
//     target       | piece 0  | piece 1  | piece 2        | piece 3  |
//     copied by      thread 0   thread 1   waiting thread   thread 0
//
// Pieces are copied in order, by the threads of the pool and by the thread that waits for the copy. A thread without
// work polls for SPIN and then sleeps. It polls for LONG_SPIN if the threads were idle for less than that before the
// last job came. On a virtual machine it takes 0.1 ms to wake up, in which one thread copies 1.3 MB. Signals are blocked
// in the threads. A child of fork does not have the threads.
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
constexpr int POLLS = 32;  // Between two reads of the clock.
constexpr size_t PIECE_BYTES = 1 << 17, SMALL_PIECE_BYTES = 1 << 15;
constexpr size_t SMALL_BYTES = 1 << 19;  // Up to here, copies have small pieces, so that each thread gets some.

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Polls until a condition is true; returns false if it is not within the time.
template <typename Condition>
bool spin_until(Condition is_true, Clock::duration longest = SPIN) {
    Clock::time_point end = Clock::now() + longest;
    do {
        for (int i = 0; i < POLLS; i++, pause())
            if (is_true()) return true;
        std::this_thread::yield();  // Other threads may need this core.
    } while (Clock::now() < end);
    return false;
}

inline size_t pieces_of(size_t num_bytes, size_t piece_bytes = PIECE_BYTES) {
    return (num_bytes + piece_bytes - 1) / piece_bytes;
}

// The size of the pieces of a copy.
inline size_t piece_bytes_of(size_t num_bytes) { return num_bytes <= SMALL_BYTES ? SMALL_PIECE_BYTES : PIECE_BYTES; }

// Work in pieces, each done by any thread. A thread's last access to the job is to mark its piece as done.
class Job {
   public:
    const size_t num_pieces;
    size_t next = 0;  // The first piece that no thread has started.

    explicit Job(size_t pieces) : num_pieces(pieces), is_done_(pieces) {}
    virtual ~Job() = default;

    // Whether so many first pieces are done.
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

// Copies `num_bytes` bytes to a target.
struct CopyJob : Job {
    char* const target;
    const size_t num_bytes, piece_bytes;
    std::atomic<bool> is_wrong{false};  // The source is not what was measured; the target is incomplete.

    CopyJob(void* to, size_t size)
        : Job(pieces_of(size, piece_bytes_of(size))), target(static_cast<char*>(to)), num_bytes(size),
          piece_bytes(piece_bytes_of(size)) {}

    // The time from its beginning to the end of the piece that ended last.
    double seconds() const { return std::chrono::duration<double>(Clock::duration(duration_)).count(); }

   private:
    void work(size_t piece) final {
        size_t first = piece * piece_bytes;
        copy(first, std::min(first + piece_bytes, num_bytes));
        duration_.store((Clock::now() - begin_).count());
    }
    // Copies the bytes first <= place < end of the target.
    virtual void copy(size_t first, size_t end) = 0;

    const Clock::time_point begin_ = Clock::now();
    std::atomic<Clock::rep> duration_{0};
};

// Copies contiguous bytes.
struct BytesJob final : CopyJob {
    const char* const source;

    BytesJob(void* to, const void* from, size_t size) : CopyJob(to, size), source(static_cast<const char*>(from)) {}

   private:
    void copy(size_t first, size_t end) override { std::memcpy(target + first, source + first, end - first); }
};

// The threads of one process and their jobs. They are never freed, because copies may still refer to them.
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
            // The process may have no more threads; those that exist, and waiting threads, do the work.
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    // Whether this process has the threads, which a child of fork has not.
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

    // Returns when so many first pieces of a job are done; does those of them that no thread has started.
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

    // Gets one of the first `pieces` pieces of a job; false if all of them are started.
    bool take(Job* job, size_t pieces, size_t* piece) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (job->next >= pieces) return false;
        *piece = next_of(job);
        return true;
    }

    // Gets a piece of the first job; false if there is none.
    bool take_any(Job** job, size_t* piece) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (jobs_.empty()) return false;
        *job = jobs_.front();
        *piece = next_of(*job);
        return true;
    }

    // Starts the next piece of a job, which has one. The caller holds the mutex.
    size_t next_of(Job* job) {
        size_t piece = job->next++;
        if (job->next == job->num_pieces) jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
        has_jobs_ = !jobs_.empty();
        if (!has_jobs_) idle_since_ = Clock::now();
        return piece;
    }

    const pid_t process_ = getpid();
    std::mutex mutex_;  // Guards all members that are not atomic, and `next` of every job.
    std::condition_variable awake_, done_;
    std::deque<Job*> jobs_;  // The jobs with pieces that no thread has started.
    Clock::time_point idle_since_{};  // When the last piece was started.
    std::atomic<bool> has_jobs_{false}, is_closing_{false};
    std::atomic<bool> is_busy_{false};  // The last job came less than LONG_SPIN after `idle_since_`.
    std::atomic<int> num_waiting_{0};
    int num_asleep_ = 0;
    std::vector<std::thread> threads_;
};

}  // namespace staging
