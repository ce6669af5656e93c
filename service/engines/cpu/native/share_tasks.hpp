// Shares the tasks of a call among the caller and the threads of a pool, which live as long as the process.
//
// Waking a thread costs the waker 5 to 10 us, and the thread runs 3 to 25 us later, on shared virtual cores (2026-11).
// So threads wake each other, and after calls in quick succession they look for the next one before they sleep:
//
//     caller ─┬─ thread 1 ─┬─ thread 3
//             │            └─ thread 4
//             └─ thread 2 ─── thread 5
//
// A thread that begins too late finds no task: the caller never waits for a thread that has not begun.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include <pthread.h>

// The helping threads of a process, as many as the largest call so far could use.
class ThreadPool {
   public:
    // The pool is never destroyed; its threads end with the process. A forked process has none of them, so it makes
    // its own pool.
    static ThreadPool& instance() {
        static const bool is_made = [] {
            replace();
            pthread_atfork(nullptr, nullptr, replace);
            return true;
        }();
        (void)is_made;
        return *pool();
    }

    // Calls work() in this thread and in up to `num_helpers` others, and returns when all calls have returned.
    // Calls ask() now and then while it waits for the others. `work` throws nothing.
    template <typename Work, typename Ask>
    void run(size_t num_helpers, Work& work, Ask ask) {
        Job job{[](void* context) { (*static_cast<Work*>(context))(); }, &work, num_helpers};
        offer(job);
        work();
        finish(job, ask);
    }

   private:
    using Clock = std::chrono::steady_clock;
    using Lock = std::unique_lock<std::mutex>;

    struct Job {
        void (*call)(void*);
        void* context;
        size_t num_wanted;                   // Threads that may still begin.
        size_t num_asleep = 0;               // Those of them that have to be woken.
        std::atomic<size_t> num_running{0};
        Job* next = nullptr;
    };
    static constexpr size_t WAKES = 2;                            // By the caller, and by each thread that begins.
    static constexpr auto SPIN = std::chrono::microseconds(20);   // Waking a sleeping thread takes as long.
    static constexpr auto POLL = std::chrono::microseconds(50);   // The longest time between calls of a loop.
    static constexpr auto ASKING = std::chrono::milliseconds(50);

    static ThreadPool*& pool() {
        static ThreadPool* pool = nullptr;
        return pool;
    }
    static void replace() { pool() = new ThreadPool; }

    // Locks without sleeping if the lock is free soon, as it is when many threads begin at once.
    static void lock_soon(Lock& lock) {
        for (int tries = 0; tries < 100; tries++)
            if (lock.try_lock()) return;
        lock.lock();
    }

    void offer(Job& job) {
        size_t num_woken;
        {
            Lock lock(mutex_);
            start_threads(job.num_wanted);
            Job** last = &jobs_;
            while (*last) last = &(*last)->next;
            *last = &job;
            has_jobs_ = true;
            is_loop_ = Clock::now() - last_end_ < POLL;
            job.num_asleep = job.num_wanted - std::min(job.num_wanted, num_polling_);
            num_woken = take_asleep(job);
        }
        wake(num_woken);
    }

    // Returns how many threads this one wakes for a job; they wake the others.
    static size_t take_asleep(Job& job) {
        size_t count = std::min(job.num_asleep, WAKES);
        job.num_asleep -= count;
        return count;
    }

    void wake(size_t count) {
        for (; count; count--) has_work_.notify_one();
    }

    // Starts threads until there are `count`, or fewer if the system refuses more.
    void start_threads(size_t count) {
        if (num_threads_ >= count) return;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);   // Signals are for Python's threads.
        try {
            for (; num_threads_ < count; num_threads_++) std::thread(&ThreadPool::serve, this).detach();
        } catch (const std::system_error&) {
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    void serve() {
        Lock lock(mutex_);
        while (true) {
            has_work_.wait(lock, [&] { return jobs_ != nullptr; });
            Job& job = *jobs_;
            job.num_running++;
            if (--job.num_wanted == 0) remove(job);
            size_t num_woken = jobs_ ? take_asleep(*jobs_) : 0;
            lock.unlock();
            wake(num_woken);
            job.call(job.context);
            lock_soon(lock);
            if (--job.num_running == 0) has_ended_.notify_all();   // The job may end with the lock.
            last_end_ = Clock::now();
            if (is_loop_ && !jobs_) poll(lock);
        }
    }

    // Looks for the next job for a while, and gives way to other programs meanwhile.
    void poll(Lock& lock) {
        num_polling_++;
        lock.unlock();
        auto end = Clock::now() + POLL;
        while (!has_jobs_ && Clock::now() < end) std::this_thread::yield();
        lock_soon(lock);
        num_polling_--;
    }

    void remove(Job& job) {
        for (Job** each = &jobs_; *each; each = &(*each)->next) {
            if (*each != &job) continue;
            *each = job.next;
            break;
        }
        has_jobs_ = jobs_ != nullptr;
    }

    template <typename Ask>
    void finish(Job& job, Ask ask) {
        Lock lock(mutex_, std::defer_lock);
        lock_soon(lock);
        remove(job);
        if (!job.num_running) return;
        lock.unlock();
        auto end = Clock::now() + SPIN;
        while (job.num_running && Clock::now() < end) {
        }
        lock.lock();
        while (!has_ended_.wait_for(lock, ASKING, [&] { return job.num_running == 0; })) {
            lock.unlock();
            ask();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable has_work_, has_ended_;
    Job* jobs_ = nullptr;                 // In the order in which they came.
    std::atomic<bool> has_jobs_{false};   // The same for threads without the lock.
    size_t num_threads_ = 0, num_polling_ = 0;
    Clock::time_point last_end_{};        // Of a thread's work.
    bool is_loop_ = false;                // The last job came soon after the one before.
};

// How the bytes of a call are shared.
struct Shares {
    int num_threads;
    int64_t task_bytes;
};

// Shares bytes among up to `most` threads, of which each has at least `thread_bytes`, in tasks of up to `task_bytes`.
inline Shares make_shares(int64_t num_bytes, int most, int64_t thread_bytes, int64_t task_bytes) {
    constexpr int64_t TASKS_A_THREAD = 8, LEAST_TASK_BYTES = 4096;
    auto num_threads = static_cast<int>(std::clamp<int64_t>(num_bytes / thread_bytes, 1, std::max(most, 1)));
    if (num_threads == 1) return {1, task_bytes};
    int64_t even = std::max(num_bytes / (num_threads * TASKS_A_THREAD), LEAST_TASK_BYTES);
    return {num_threads, std::min(task_bytes, even)};
}

// The result of a call that is always needed; see still_needed.hpp.
struct AlwaysNeeded {
    void check() {}
    void ask() {}
};

// Runs `work(state, task)` for each task by up to `num_threads` threads, the caller's included.
//
// `make_state()` makes what a thread needs for all of its tasks. An exception of one thread is thrown when all have
// ended; the others do the remaining tasks first, while the result is needed.
template <typename MakeState, typename Work, typename Needed = AlwaysNeeded>
void share_tasks(size_t num_tasks, int num_threads, MakeState make_state, Work work, Needed&& needed = {}) {
    std::atomic<size_t> next{0};
    std::exception_ptr error;
    std::mutex mutex;
    auto run = [&] {
        size_t task = next++;
        if (task >= num_tasks) return;
        try {
            for (auto state = make_state(); task < num_tasks; task = next++) {
                needed.check();
                work(state, task);
            }
        } catch (...) {
            std::lock_guard<std::mutex> lock(mutex);
            error = std::current_exception();
        }
    };
    auto num_helpers = std::min(static_cast<size_t>(std::max(num_threads, 1)), num_tasks);
    if (num_helpers > 1) ThreadPool::instance().run(num_helpers - 1, run, [&] { needed.ask(); });
    else run();
    if (error) std::rethrow_exception(error);
}
