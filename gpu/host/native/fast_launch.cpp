// All that the host does for a small batch, from its text to the wait for the kernel, in one call; see gpu/host/fast_launch.py.
//
//     launcher = Launcher(driver, words, told, fields, arrays)    of a workspace, see launcher_of
//     launcher.encode(kernel, blocks, text, way, begins, framed, validates, id_bits, ids)
//
// `kernel` is (function, threads, shared bytes, takes the Job, waits for its like, …). A way says where it finds the text:
// staged in pinned memory, in place, or copied to the device; ids go to an address. What comes back is a number of ids
// or, below 0, why there is none. The interpreter's lock is not held while the driver works.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstring>
#include <initializer_list>
#include <utility>

#include "python_helpers.hpp"

namespace {

// CUlaunchAttribute and CUlaunchConfig of CUDA's driver.
struct Attribute {
    uint64_t id;
    uint32_t value[16];
};

struct Config {
    uint32_t grid[3], block[3], shared_bytes;
    void* stream;
    const Attribute* attributes;
    uint32_t num_attributes;
};

constexpr Attribute COOPERATIVE = {2, {1}};  // CU_LAUNCH_ATTRIBUTE_COOPERATIVE: all blocks run at a time.

struct Driver {
    int (*set_context)(void* context);
    int (*copy_in)(uint64_t device, const void* host, size_t num_bytes, void* stream);
    int (*launch)(const Config* config, void* function, void** arguments, void** extra);
    int (*synchronize)(void* stream);
    void *context, *stream;
};

// Which 8-byte words of the Job are told of a batch; the order of `fast_launch.WORDS`.
struct Words {
    uint32_t host_text, num_bytes, num_rows, row_flags, row_max_length, row_refused, validates, leaves, id_bits;
    uint32_t framed, answer_ids, answer_offsets, host_ids, text, sent_begins, zeros[5];
};

struct Launcher {
    PyObject_HEAD
    Driver driver;
    Words words;
    uint32_t told[5];  // Words of the status that say that there is more to do than to take ids.
    uint64_t ids[2], offsets[2];  // Where the answer lies on the device, without frames and with them.
    uint64_t row_refused, text_place, row_begins;  // Fields of the workspace.
    Py_buffer job, text, begins, status, answer;
};

// What comes back instead of a number of ids.
enum : Py_ssize_t { NOT_LAUNCHED = -1, SAYS_MORE = -2 };

uint64_t* words_of(const Py_buffer& buffer) { return static_cast<uint64_t*>(buffer.buf); }

// Raises TypeError where numbers of a kernel are none.
Config config_of(PyObject* kernel, PyObject* blocks, void* stream) {
    auto number = [](PyObject* given) { return static_cast<uint32_t>(PyLong_AsUnsignedLong(given)); };
    uint32_t threads = number(PyTuple_GET_ITEM(kernel, 1)), shared_bytes = number(PyTuple_GET_ITEM(kernel, 2));
    bool is_grid = PyTuple_GET_ITEM(kernel, 4) == Py_True;
    return {{number(blocks), 1, 1}, {threads, 1, 1}, shared_bytes, stream, &COOPERATIVE, is_grid};
}

enum Way : uint32_t { STAGED, IN_PLACE, COPIED };  // As in gpu/host/fast_launch.py.

// What a call says of its batch.
struct Asked {
    uint32_t way;
    bool framed, validates;
    uint64_t id_bits, ids;
};

bool is_array_of(const Py_buffer& array, Py_ssize_t item_bytes, const char* kinds) {
    return array.ndim == 1 && array.itemsize == item_bytes && array.format && strchr(kinds, array.format[0]) &&
           !array.format[1];
}

// Whether these are uint8[N], and int64[B + 1] from 0 to N.
bool are_rows(const Py_buffer& text, const Py_buffer& begins) {
    if (!is_array_of(text, 1, "B") || !is_array_of(begins, 8, "lq") || begins.len < 8) return false;
    auto* places = static_cast<const int64_t*>(begins.buf);
    return places[0] == 0 && places[begins.len / 8 - 1] == text.len;
}

// Text, where its rows begin, and the words that differ from batch to batch; false: a row ends before it begins.
bool put_batch(Launcher* self, const Py_buffer& text, const Py_buffer& begins, const Asked& asked) {
    size_t count = static_cast<size_t>(begins.len) / 8;
    if (!copy_ascending(words_of(self->begins), words_of(begins), count)) return false;
    if (asked.way == STAGED) memcpy(self->text.buf, text.buf, static_cast<size_t>(text.len));
    uint64_t* job = words_of(self->job);
    const Words& words = self->words;
    void* places[] = {self->text.buf, text.buf, nullptr};
    job[words.host_text] = reinterpret_cast<uint64_t>(places[asked.way]);
    job[words.num_bytes] = static_cast<uint64_t>(text.len);
    job[words.num_rows] = count - 1;
    job[words.row_flags] = job[words.row_max_length] = 0;
    job[words.row_refused] = self->row_refused;
    job[words.validates] = asked.validates;
    job[words.leaves] = 0;
    job[words.id_bits] = asked.id_bits;
    job[words.framed] = asked.framed;
    job[words.answer_ids] = self->ids[asked.framed];
    job[words.answer_offsets] = self->offsets[asked.framed];
    job[words.text] = self->text_place;  // No row is turned.
    job[words.sent_begins] = self->row_begins;
    for (uint32_t word : words.zeros) job[word] = 0;
    memset(self->status.buf, 0, static_cast<size_t>(self->status.len));
    return true;
}

// The text's copy if there is one, the kernel, and the wait for both; the driver's error, 0 if there is none. The address
// that ids go to comes with the launch; the Job has its own one again behind it.
int run(Launcher* self, void* function, const Config& config, const Py_buffer& text, const Asked& asked) {
    const Driver& driver = self->driver;
    void* arguments[] = {self->job.buf};
    uint64_t& place = words_of(self->job)[self->words.host_ids];
    uint64_t own = std::exchange(place, asked.ids);
    int error = driver.set_context(driver.context);
    if (!error && asked.way == COPIED)
        error = driver.copy_in(self->text_place, text.buf, static_cast<size_t>(text.len), driver.stream);
    if (!error) error = driver.launch(&config, function, arguments, nullptr);
    place = own;
    int at_end = driver.synchronize(driver.stream);  // Whatever failed, the text may be on its way.
    return error ? error : at_end;
}

// Number of ids, or that there is more to say.
Py_ssize_t num_ids(const Launcher* self, size_t num_rows) {
    const uint64_t* status = words_of(self->status);
    uint64_t more = 0;
    for (uint32_t word : self->told) more |= status[word];
    return more ? static_cast<Py_ssize_t>(SAYS_MORE) : static_cast<Py_ssize_t>(words_of(self->answer)[num_rows]);
}

bool has_room(const Launcher* self, const Py_buffer& text, const Py_buffer& begins, uint32_t way) {
    bool has = (way == IN_PLACE || text.len <= self->text.len) && begins.len <= self->begins.len;
    if (!has) PyErr_SetString(PyExc_ValueError, "there is no room for the batch");
    return has;
}

// As `encode`, of buffers; null with an exception.
PyObject* encode_rows(Launcher* self, PyObject* kernel, const Config& config, const Py_buffer& text,
                      const Py_buffer& begins, const Asked& asked) {
    auto function = static_cast<uintptr_t>(PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(kernel, 0)));
    if (PyErr_Occurred()) return nullptr;
    if (!are_rows(text, begins)) return PyLong_FromSsize_t(NOT_LAUNCHED);
    if (!has_room(self, text, begins, asked.way)) return nullptr;
    if (!put_batch(self, text, begins, asked)) return PyLong_FromSsize_t(NOT_LAUNCHED);
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = run(self, reinterpret_cast<void*>(function), config, text, asked);
    Py_END_ALLOW_THREADS
    if (error) return PyErr_Format(PyExc_RuntimeError, "CUDA error %d", error);
    return PyLong_FromSsize_t(num_ids(self, static_cast<size_t>(begins.len) / 8 - 1));
}

constexpr int WITH_KIND = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS;

// What is no array, or is not in one piece.
PyObject* not_launched() {
    PyErr_Clear();
    return PyLong_FromSsize_t(NOT_LAUNCHED);
}

PyObject* encode(Launcher* self, PyObject* const* arguments, Py_ssize_t given) {
    if (!has_arguments(given, 9)) return nullptr;
    if (!PyTuple_Check(arguments[0]) || PyTuple_GET_SIZE(arguments[0]) < 5)
        return PyErr_Format(PyExc_TypeError, "a kernel is a tuple of five and more");
    Config config = config_of(arguments[0], arguments[1], self->driver.stream);
    Asked asked = {static_cast<uint32_t>(PyLong_AsUnsignedLong(arguments[3])), arguments[5] == Py_True, arguments[6] == Py_True,
                   PyLong_AsUnsignedLongLong(arguments[7]), PyLong_AsUnsignedLongLong(arguments[8])};
    Py_buffer text, begins;
    if (PyErr_Occurred()) return nullptr;
    if (asked.way > COPIED) return PyErr_Format(PyExc_ValueError, "there is no way %u", asked.way);
    if (PyObject_GetBuffer(arguments[2], &text, WITH_KIND) < 0) return not_launched();
    PyObject* answer = nullptr;
    if (PyObject_GetBuffer(arguments[4], &begins, WITH_KIND) == 0) {
        answer = encode_rows(self, arguments[0], config, text, begins, asked);
        PyBuffer_Release(&begins);
    } else {
        answer = not_launched();
    }
    PyBuffer_Release(&text);  // In place it was read until here.
    return answer;
}

void free_launcher(Launcher* self) {
    for (Py_buffer* buffer : {&self->job, &self->text, &self->begins, &self->status, &self->answer})
        PyBuffer_Release(buffer);
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

// Reads tuples of as many numbers as there is room for; false: an exception is set.
template <typename Number> bool read_numbers(PyObject* given, Number* numbers, Py_ssize_t count) {
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != count) {
        PyErr_Format(PyExc_TypeError, "a tuple of %zd numbers is expected", count);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        numbers[i] = static_cast<Number>(PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(given, i)));
    return !PyErr_Occurred();
}

bool read_arrays(Launcher* self, PyObject* arrays) {
    PyObject *job, *text, *begins, *status, *answer;
    if (!PyArg_ParseTuple(arrays, "OOOOO", &job, &text, &begins, &status, &answer)) return false;
    return PyObject_GetBuffer(job, &self->job, PyBUF_WRITABLE) == 0 &&
           PyObject_GetBuffer(text, &self->text, PyBUF_WRITABLE) == 0 &&
           PyObject_GetBuffer(begins, &self->begins, PyBUF_WRITABLE) == 0 &&
           PyObject_GetBuffer(status, &self->status, PyBUF_WRITABLE) == 0 &&
           PyObject_GetBuffer(answer, &self->answer, PyBUF_SIMPLE) == 0;
}

PyObject* new_launcher(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *driver, *words, *told, *fields_given, *arrays;
    if (!PyArg_ParseTuple(arguments, "OOOOO", &driver, &words, &told, &fields_given, &arrays)) return nullptr;
    auto* self = reinterpret_cast<Launcher*>(type->tp_alloc(type, 0));
    uint64_t addresses[6], fields[7];
    bool is_right = self && read_numbers(driver, addresses, 6) &&
                    read_numbers(words, reinterpret_cast<uint32_t*>(&self->words), sizeof(Words) / sizeof(uint32_t)) &&
                    read_numbers(told, self->told, 5) &&
                    read_numbers(fields_given, fields, 7) && read_arrays(self, arrays);
    if (!is_right) {
        Py_XDECREF(self);
        return nullptr;
    }
    memcpy(&self->driver, addresses, sizeof addresses);
    memcpy(self->ids, fields, sizeof self->ids);
    memcpy(self->offsets, fields + 2, sizeof self->offsets);
    self->row_refused = fields[4];
    self->text_place = fields[5];
    self->row_begins = fields[6];
    return reinterpret_cast<PyObject*>(self);
}
static_assert(sizeof(Driver) == 6 * sizeof(uint64_t), "addresses alone");

PyMethodDef methods[] = {
    {"encode", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(encode)), METH_FASTCALL,
     "encode(kernel, blocks, text, way, begins, framed, validates, id_bits, ids, /): how many ids; -1: these are "
     "no rows, -2: the status has more to say."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_launcher)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_launcher)},
    {Py_tp_methods, methods},
    {0, nullptr},
};
PyType_Spec spec{"gpu.host._fast_launch.Launcher", sizeof(Launcher), 0, Py_TPFLAGS_DEFAULT, slots};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "gpu.host._fast_launch", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__fast_launch() {
    PyObject* made = PyModule_Create(&module);
    PyObject* type = PyType_FromSpec(&spec);
    if (!made || !type) return nullptr;
    return PyModule_AddObjectRef(made, "Launcher", type) < 0 ? nullptr : made;
}
