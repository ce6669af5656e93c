// Shares the tasks of a call among threads that live as long as the call.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

// Runs `work(state, task)` for each task by up to `num_threads` threads, the caller's included.
//
// `make_state()` makes what a thread needs for all of its tasks. An exception of one thread is thrown when all have
// ended; the others do the remaining tasks first.
template <typename MakeState, typename Work>
void share_tasks(size_t num_tasks, int num_threads, MakeState make_state, Work work) {
    std::atomic<size_t> next{0};
    std::exception_ptr error;
    std::mutex mutex;
    auto run = [&] {
        try {
            auto state = make_state();
            for (size_t task; (task = next++) < num_tasks;) work(state, task);
        } catch (...) {
            std::lock_guard<std::mutex> lock(mutex);
            error = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    try {
        for (int i = 1; i < num_threads && static_cast<size_t>(i) < num_tasks; i++) threads.emplace_back(run);
    } catch (const std::system_error&) {
        // The process may have no more threads: those that exist do the work.
    }
    run();
    for (std::thread& thread : threads) thread.join();
    if (error) std::rethrow_exception(error);
}
