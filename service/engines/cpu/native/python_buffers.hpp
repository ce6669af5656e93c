// Helpers of the CPU engine's C++ extensions: buffers, Python exceptions, and work without Python's lock.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <thread>

// A buffer of a Python object, released at the end.
struct View {
    Py_buffer buffer{};
    bool is_acquired = false;

    View() = default;
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    bool acquire(PyObject* object, bool is_written = false) {
        is_acquired = PyObject_GetBuffer(object, &buffer, is_written ? PyBUF_CONTIG : PyBUF_CONTIG_RO) == 0;
        return is_acquired;
    }
    template <typename Element>
    Element* elements() const {
        return static_cast<Element*>(buffer.buf);
    }
    template <typename Element>
    size_t size() const {
        return static_cast<size_t>(buffer.len) / sizeof(Element);
    }
    ~View() {
        if (is_acquired) PyBuffer_Release(&buffer);
    }
};

// Calls code that takes Python's lock, and returns its result.
//
// Up to Python 3.13, a thread that asks for the lock while the interpreter ends is unwound as by an exception. That
// would destroy what the other threads of the call still use, and objects of Python without the lock. So the thread
// sleeps here until the process ends, as from Python 3.14 on.
template <typename Take>
auto take_lock(Take take) {
    try {
        return take();
    } catch (...) {
        while (true) std::this_thread::sleep_for(std::chrono::hours(1));
    }
}

// Runs code without Python's lock; returns false, with a Python exception, if it throws.
template <typename Work>
bool run_unlocked(Work work) {
    std::string error;
    bool has_memory = true;
    PyThreadState* state = PyEval_SaveThread();
    try {
        work();
    } catch (const std::bad_alloc&) {
        has_memory = false;
    } catch (const std::exception& thrown) {
        error = thrown.what();
    }
    take_lock([&] { PyEval_RestoreThread(state); });
    if (!has_memory) PyErr_NoMemory();
    else if (!error.empty()) PyErr_SetString(PyExc_RuntimeError, error.c_str());
    return has_memory && error.empty();
}

inline PyObject* refuse(const char* message) {
    PyErr_SetString(PyExc_ValueError, message);
    return nullptr;
}

template <typename Type>
void destroy(PyObject* capsule) {
    delete static_cast<Type*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
}
