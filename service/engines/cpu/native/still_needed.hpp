// Asks Python now and then whether the result of a call is still needed.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "python_buffers.hpp"

// Thrown in a thread that works on a result that is no longer needed.
struct Abandoned {};

// Holds whether the result is still needed. The thread that calls an extension makes it; only this thread asks Python,
// and the other threads read its answer.
class StillNeeded {
   public:
    // `should_continue` is a callable object that returns whether the result is needed.
    explicit StillNeeded(PyObject* should_continue) : should_continue_(should_continue) {}

    // Throws Abandoned if the result is not needed any more. Costs some tens of nanoseconds.
    void check() {
        if (std::this_thread::get_id() == caller_) ask();
        if (is_abandoned_.load(std::memory_order_relaxed)) throw Abandoned();
    }

    // Asks Python if the last time was INTERVAL ago; the calling thread calls it, with or without Python's lock. An
    // exception stays set in Python.
    void ask() {
        auto now = std::chrono::steady_clock::now();
        if (is_abandoned_ || now < next_) return;
        is_abandoned_ = !take_lock([&] { return ask_python(); });
        next_ = std::chrono::steady_clock::now() + INTERVAL;
    }

   private:
    static constexpr auto INTERVAL = std::chrono::milliseconds(50);   // Python's lock may take some of them.

    bool ask_python() const {
        PyGILState_STATE state = PyGILState_Ensure();
        PyObject* answer = PyObject_CallNoArgs(should_continue_);
        bool is_needed = answer && PyObject_IsTrue(answer) == 1;
        Py_XDECREF(answer);
        PyGILState_Release(state);
        return is_needed;
    }

    PyObject* const should_continue_;
    const std::thread::id caller_ = std::this_thread::get_id();
    std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + INTERVAL;
    std::atomic<bool> is_abandoned_{false};
};
