// Copies by a pool of threads; see thread_pool.hpp.
//
//     pool = Pool(num_threads)
//     copy = pool.start(target, source)             begins to copy source to the front of target
//     copy = pool.gather(target, texts, offsets)    the same for strings that were measured, see string_job.hpp
//     copy.wait(num_bytes)                          waits until the first num_bytes are copied
//     copy.seconds                                  from its beginning to the end of its last piece so far
//     pool.close()                                  ends the threads; what has begun is completed
//     address_of(array)                             the address of its first item
//     put_begins(to, begins)                        copies int64s; returns None, or the first row with a negative size
//
// A child of fork completes running copies by itself, and makes threads of its own for later ones.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "array_functions.hpp"
#include "string_job.hpp"

namespace {

using staging::BytesJob, staging::CopyJob, staging::StringsJob, staging::Threads;

constexpr char TOO_SHORT[] = "the target is too short";
constexpr char NOT_MEASURED[] = "the texts are not those that were measured";

struct Pool {
    PyObject_HEAD
    int num_threads;
    Threads* threads;  // Null before the first copy.
};

// Holds references to source and target as long as threads use them.
struct Copy {
    PyObject_HEAD
    Threads* threads;
    CopyJob* job;
    Py_buffer target, source;
    PyObject* texts;
};

PyTypeObject* copy_type;

PyObject* new_pool(PyTypeObject* type, PyObject* arguments, PyObject*) {
    int num_threads;
    if (!PyArg_ParseTuple(arguments, "i", &num_threads)) return nullptr;
    auto* pool = reinterpret_cast<Pool*>(type->tp_alloc(type, 0));
    if (pool) pool->num_threads = num_threads;
    return reinterpret_cast<PyObject*>(pool);
}

PyObject* close_pool(Pool* pool, PyObject*) {
    Threads* threads = pool->threads;
    pool->threads = nullptr;
    if (threads && threads->are_here()) {
        Py_BEGIN_ALLOW_THREADS
        threads->close();
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

template <typename Object>
void free_object(Object* object) {
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

void free_pool(Pool* pool) {
    Py_DECREF(close_pool(pool, nullptr));
    free_object(pool);
}

Copy* new_copy(PyObject* target) {
    auto* copy = reinterpret_cast<Copy*>(copy_type->tp_alloc(copy_type, 0));
    if (copy && PyObject_GetBuffer(target, &copy->target, PyBUF_WRITABLE) < 0) Py_CLEAR(copy);
    return copy;
}

Threads* threads_of(Pool* pool) {
    if (!pool->threads || !pool->threads->are_here()) pool->threads = new Threads(pool->num_threads);
    return pool->threads;
}

PyObject* refuse(Copy* copy, const char* why) {
    Py_DECREF(copy);
    PyErr_SetString(PyExc_ValueError, why);
    return nullptr;
}

PyObject* begin(Pool* pool, Copy* copy, CopyJob* job) {
    copy->threads = threads_of(pool);
    copy->job = job;
    if (job->num_pieces) copy->threads->add(job);
    return reinterpret_cast<PyObject*>(copy);
}

PyObject* start(Pool* pool, PyObject* const* arguments, Py_ssize_t given) {
    Copy* copy = has_arguments(given, 2) ? new_copy(arguments[0]) : nullptr;
    if (!copy) return nullptr;
    if (PyObject_GetBuffer(arguments[1], &copy->source, PyBUF_SIMPLE) < 0) {
        Py_DECREF(copy);
        return nullptr;
    }
    if (copy->source.len > copy->target.len) return refuse(copy, TOO_SHORT);
    return begin(pool, copy, new BytesJob(copy->target.buf, copy->source.buf, static_cast<size_t>(copy->source.len)));
}

// The threads check the strings themselves.
PyObject* gather(Pool* pool, PyObject* const* arguments, Py_ssize_t given) {
    Copy* copy = has_arguments(given, 3) ? new_copy(arguments[0]) : nullptr;
    if (!copy) return nullptr;
    copy->texts = PySequence_Tuple(arguments[1]);  // Keeps the strings even if a list changes.
    if (!copy->texts || PyObject_GetBuffer(arguments[2], &copy->source, PyBUF_SIMPLE) < 0) {
        Py_DECREF(copy);
        return nullptr;
    }
    Py_ssize_t num_texts = PyTuple_GET_SIZE(copy->texts);
    auto* begins = static_cast<const int64_t*>(copy->source.buf);
    bool is_whole = copy->source.len == static_cast<Py_ssize_t>(sizeof(int64_t)) * (num_texts + 1);
    if (!is_whole || begins[0] != 0 || begins[num_texts] < 0) return refuse(copy, NOT_MEASURED);
    if (begins[num_texts] > copy->target.len) return refuse(copy, TOO_SHORT);
    return begin(pool, copy, new StringsJob(copy->target.buf, copy->texts, begins));
}

// Waits until the first bytes are copied. Does not need the interpreter's lock.
void finish(Copy* copy, size_t num_bytes) {
    CopyJob* job = copy->job;
    size_t pieces = std::min(job->num_pieces, staging::pieces_of(num_bytes, job->piece_bytes));
    if (job->has(pieces)) return;
    if (copy->threads->are_here()) return copy->threads->finish(job, pieces);
    for (size_t piece = 0; piece < pieces; piece++) job->run(piece);
}

PyObject* wait(Copy* copy, PyObject* number) {
    size_t num_bytes = PyLong_AsSize_t(number);
    if (num_bytes == static_cast<size_t>(-1) && PyErr_Occurred()) return nullptr;
    Py_BEGIN_ALLOW_THREADS
    finish(copy, num_bytes);
    Py_END_ALLOW_THREADS
    if (!copy->job->is_wrong) Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, NOT_MEASURED);
    return nullptr;
}

PyObject* seconds(Copy* copy, void*) { return PyFloat_FromDouble(copy->job->seconds()); }

void free_copy(Copy* copy) {
    if (copy->job) finish(copy, copy->job->num_bytes);
    delete copy->job;
    PyBuffer_Release(&copy->target);
    PyBuffer_Release(&copy->source);
    Py_XDECREF(copy->texts);
    free_object(copy);
}

template <PyObject* (*METHOD)(Pool*, PyObject* const*, Py_ssize_t)>
PyObject* guarded(Pool* pool, PyObject* const* arguments, Py_ssize_t given) {
    try {
        return METHOD(pool, arguments, given);
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
}

PyMethodDef pool_methods[] = {
    {"start", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(guarded<start>)), METH_FASTCALL,
     "start(target, source, /): begins to copy source to the front of target."},
    {"gather", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(guarded<gather>)), METH_FASTCALL,
     "gather(target, texts, offsets, /): the same for strings that were measured, offsets int64[B + 1]."},
    {"close", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(close_pool)), METH_NOARGS,
     "close(): ends the threads; the next copy starts them again."},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef copy_methods[] = {
    {"wait", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(wait)), METH_O,
     "wait(num_bytes, /): waits until the first bytes are copied."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef copy_fields[] = {
    {"seconds", reinterpret_cast<getter>(seconds), nullptr, "The seconds from its beginning to the end of its last piece so far.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot pool_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_pool)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_pool)},
    {Py_tp_methods, pool_methods},
    {0, nullptr},
};

PyType_Slot copy_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(free_copy)},
    {Py_tp_methods, copy_methods},
    {Py_tp_getset, copy_fields},
    {0, nullptr},
};

constexpr unsigned COPY_FLAGS = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
PyType_Spec pool_spec{"gpu.host._copy_pool.Pool", sizeof(Pool), 0, Py_TPFLAGS_DEFAULT, pool_slots};
PyType_Spec copy_spec{"gpu.host._copy_pool.Copy", sizeof(Copy), 0, COPY_FLAGS, copy_slots};

PyMethodDef functions[] = {
    {"address_of", reinterpret_cast<PyCFunction>(address_of), METH_O,
     "address_of(array, /): returns the address of the first item."},
    {"put_begins", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(put_begins)), METH_FASTCALL,
     "put_begins(to, begins, /): copies int64s; returns None, or the number of the first that is above the next."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "gpu.host._copy_pool", nullptr, -1, functions,
                      nullptr,               nullptr,        nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__copy_pool() {
    PyObject* made = PyModule_Create(&module);
    PyObject* pool_type = PyType_FromSpec(&pool_spec);
    copy_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&copy_spec));
    if (!made || !pool_type || !copy_type) return nullptr;
    return PyModule_AddObjectRef(made, "Pool", pool_type) < 0 ? nullptr : made;
}
