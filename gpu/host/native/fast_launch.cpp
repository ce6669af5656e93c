// Launches kernels, and encodes a small batch by one call; see fast_launch.py.
//
//     spec = LaunchSpec(function=, threads=, shared_bytes=, max_blocks=, takes_job=, is_grid=, is_dependent=)
//     driver = Driver(get_context=, set_context=, copy_in=, launch=, synchronize=, context=, stream=)    of a stream
//     driver.launch(spec, blocks, job)
//     launcher = Launcher(driver, words, status_words, fields, job=, text=, row_begins=, status=, offsets=)
//     launcher.put_batch(begins, host_text=, num_bytes=, ...)    writes what differs from batch to batch
//     launcher.encode(spec, blocks, text, source, begins, post_processed, validates, id_bits, ids)
//
// A Launcher belongs to a workspace. It is the only writer of the Job's words that describe a batch. `encode` writes
// them, launches a kernel and waits for it; it returns a number of ids or, below 0, why there is none. The interpreter's
// lock is not held while the driver works.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstddef>
#include <cstring>
#include <iterator>
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
// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the launch does not wait for the kernel before it; the kernel
// does (`wait_for_kernel_before` of the device code).
constexpr Attribute DEPENDENT = {6, {1}};

// How a kernel is launched.
struct LaunchSpec {
    PyObject_HEAD
    unsigned long long function;
    unsigned int threads, shared_bytes;
    unsigned int max_blocks;  // Of a launch; 0: any number.
    char takes_job, is_grid, is_dependent;
};

// CUDA's driver, and the stream of a context that it works on.
struct Driver {
    int (*get_context)(void** context);
    int (*set_context)(void* context);
    int (*copy_in)(uint64_t device, const void* host, size_t num_bytes, void* stream);
    int (*launch)(const Config* config, void* function, void** arguments, void** extra);
    int (*synchronize)(void* stream);
    void *context, *stream;
};

struct DriverObject {
    PyObject_HEAD
    Driver driver;
};

// Which 8-byte words of the Job describe a batch.
struct Words {
    uint32_t host_text, num_bytes, num_rows, row_flags, row_max_length, row_refused, validates, planned_fallback, id_bits;
    uint32_t post_processed, answer_ids, answer_offsets, host_ids, text, sent_text, sent_begins;
    uint32_t own_spans, random_seed, first_row, substitution_rate;
};

// Words of the status that say that there is more to do than to take ids.
struct StatusWords {
    uint32_t not_utf8, fault, truncated, fallback, not_covered;
};

// Where fields of the workspace lie on the device; 0 where its layout has none.
struct Fields {
    uint64_t ids, post_processed_ids, id_offsets, post_processed_offsets, row_refused, text, augmented_text, row_begins;
    uint64_t row_flags, row_max_length;
};

struct Launcher {
    PyObject_HEAD
    Driver driver;
    Words words;
    StatusWords status_words;
    Fields fields;
    Py_buffer job, text, begins, status, offsets;
};

PyTypeObject *spec_type, *driver_type;

// What `encode` returns instead of a number of ids.
enum : Py_ssize_t { NOT_LAUNCHED = -1, MORE_TO_DO = -2 };

// Where a kernel finds the text; as in fast_launch.py.
enum Source : uint32_t { STAGED, IN_PLACE, COPIED };

uint64_t* words_of(const Py_buffer& buffer) { return static_cast<uint64_t*>(buffer.buf); }

// Raises gpu.errors.LaunchFailed.
PyObject* fail(int error) {
    PyObject* errors = PyImport_ImportModule("gpu.errors");
    PyObject* kind = errors ? PyObject_GetAttrString(errors, "LaunchFailed") : nullptr;
    if (kind) PyErr_Format(kind, "CUDA error %d", error);
    Py_XDECREF(kind);
    Py_XDECREF(errors);
    return nullptr;
}

// Makes the context of a stream current in this thread; the caller's context is current again at the end.
struct CurrentContext {
    const Driver& driver;
    void* before = nullptr;
    int error;

    explicit CurrentContext(const Driver& own) : driver(own), error(own.get_context(&before)) {
        if (!error && before != driver.context) error = driver.set_context(driver.context);
    }
    ~CurrentContext() {
        if (before != driver.context) driver.set_context(before);
    }
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;
};

// The one way to launch a kernel: normal, cooperative or dependent, as its spec says. The Job comes with the launch, from
// host memory, where the kernel takes it; others get its address on the device. Returns the driver's error, or 0.
int launch_kernel(const Driver& driver, const LaunchSpec& spec, uint32_t blocks, uint64_t job) {
    Attribute attributes[2];
    uint32_t count = 0;
    if (spec.is_grid) attributes[count++] = COOPERATIVE;
    if (spec.is_dependent) attributes[count++] = DEPENDENT;
    if (spec.max_blocks && blocks > spec.max_blocks) blocks = spec.max_blocks;
    Config config = {{blocks, 1, 1}, {spec.threads, 1, 1}, spec.shared_bytes, driver.stream, attributes, count};
    void* arguments[] = {spec.takes_job ? reinterpret_cast<void*>(job) : &job};
    return driver.launch(&config, reinterpret_cast<void*>(spec.function), arguments, nullptr);
}

// The values in the Job that differ from batch to batch, beside the offsets of rows.
struct Batch {
    uint64_t host_text, num_bytes;  // The text's address in host memory, or 0 where it is copied to the device.
    bool has_flags, has_limits;     // Whether row_flags and row_max_length are set.
    bool is_augmented;              // Whether the kernel augment_rows makes the rows that are encoded.
    bool validates;
    uint64_t planned_fallback;
};

// Writes the offsets of rows and the Job's words for a batch. Returns false if a row ends before it begins.
bool put_batch(Launcher* self, const Py_buffer& begins, const Batch& batch) {
    size_t count = static_cast<size_t>(begins.len) / 8;
    if (!copy_ascending(words_of(self->begins), words_of(begins), count)) return false;
    uint64_t* job = words_of(self->job);
    const Words& words = self->words;
    const Fields& fields = self->fields;
    job[words.host_text] = batch.host_text;
    job[words.num_bytes] = batch.num_bytes;
    job[words.num_rows] = count - 1;
    job[words.row_flags] = batch.has_flags ? fields.row_flags : 0;
    job[words.row_max_length] = batch.has_limits ? fields.row_max_length : 0;
    job[words.row_refused] = fields.row_refused;
    job[words.validates] = batch.validates;
    job[words.planned_fallback] = batch.planned_fallback;
    job[words.text] = batch.is_augmented ? fields.augmented_text : fields.text;
    job[words.sent_text] = batch.is_augmented ? fields.text : 0;
    job[words.sent_begins] = fields.row_begins;
    job[words.own_spans] = job[words.random_seed] = job[words.first_row] = job[words.substitution_rate] = 0;
    return true;
}

// Chooses the fields that hold the answer: ids with begin and end tokens, or without.
void answer_in(Launcher* self, bool post_processed) {
    uint64_t* job = words_of(self->job);
    job[self->words.post_processed] = post_processed;
    job[self->words.answer_ids] = post_processed ? self->fields.post_processed_ids : self->fields.ids;
    job[self->words.answer_offsets] = post_processed ? self->fields.post_processed_offsets : self->fields.id_offsets;
}

// The arguments of a call of `encode`.
struct Request {
    uint32_t blocks, source;
    bool post_processed, validates;
    uint64_t id_bits, ids;
};

bool is_array_of(const Py_buffer& array, Py_ssize_t item_bytes, const char* kinds) {
    return array.ndim == 1 && array.itemsize == item_bytes && array.format && strchr(kinds, array.format[0]) &&
           !array.format[1];
}

bool is_int64s(const Py_buffer& begins) { return is_array_of(begins, 8, "lq") && begins.len >= 8; }

// Whether the arrays are uint8[N] and int64[B + 1] from 0 to N.
bool are_rows(const Py_buffer& text, const Py_buffer& begins) {
    if (!is_array_of(text, 1, "B") || !is_int64s(begins)) return false;
    auto* places = static_cast<const int64_t*>(begins.buf);
    return places[0] == 0 && places[begins.len / 8 - 1] == text.len;
}

// Writes the text, its offsets and the words of the Job. Returns false if a row ends before it begins.
bool put_request(Launcher* self, const Py_buffer& text, const Py_buffer& begins, const Request& request) {
    void* places[] = {self->text.buf, text.buf, nullptr};
    Batch batch = {};
    batch.host_text = reinterpret_cast<uint64_t>(places[request.source]);
    batch.num_bytes = static_cast<uint64_t>(text.len);
    batch.validates = request.validates;
    if (!put_batch(self, begins, batch)) return false;
    if (request.source == STAGED) memcpy(self->text.buf, text.buf, static_cast<size_t>(text.len));
    answer_in(self, request.post_processed);
    words_of(self->job)[self->words.id_bits] = request.id_bits;
    memset(self->status.buf, 0, static_cast<size_t>(self->status.len));
    return true;
}

// Queues the copy of the text, if any, and the kernel, and waits for both. Returns the driver's error, or 0. The address
// for ids is set only for this launch; afterwards the Job has its own address again.
int run(Launcher* self, const LaunchSpec& spec, const Py_buffer& text, const Request& request) {
    const Driver& driver = self->driver;
    uint64_t& place = words_of(self->job)[self->words.host_ids];
    uint64_t own = std::exchange(place, request.ids);
    CurrentContext current(driver);
    int error = current.error;
    if (!error && request.source == COPIED)
        error = driver.copy_in(self->fields.text, text.buf, static_cast<size_t>(text.len), driver.stream);
    if (!error) error = launch_kernel(driver, spec, request.blocks, reinterpret_cast<uint64_t>(self->job.buf));
    place = own;
    int at_end = driver.synchronize(driver.stream);  // Also after an error: the text may be being copied.
    return error ? error : at_end;
}

// Returns the number of ids, or MORE_TO_DO.
Py_ssize_t num_ids(const Launcher* self, size_t num_rows) {
    const uint64_t* status = words_of(self->status);
    const StatusWords& words = self->status_words;
    uint64_t more = status[words.not_utf8] | status[words.fault] | status[words.truncated] | status[words.fallback] |
                    status[words.not_covered];
    return more ? static_cast<Py_ssize_t>(MORE_TO_DO) : static_cast<Py_ssize_t>(words_of(self->offsets)[num_rows]);
}

bool has_room(const Launcher* self, Py_ssize_t text_bytes, const Py_buffer& begins) {
    bool has = text_bytes <= self->text.len && begins.len <= self->begins.len;
    if (!has) PyErr_SetString(PyExc_ValueError, "there is no room for the batch");
    return has;
}

// Encodes buffers as `encode` does. Returns null with an exception.
PyObject* encode_rows(Launcher* self, const LaunchSpec& spec, const Py_buffer& text, const Py_buffer& begins,
                      const Request& request) {
    if (!are_rows(text, begins)) return PyLong_FromSsize_t(NOT_LAUNCHED);
    if (!has_room(self, request.source == IN_PLACE ? 0 : text.len, begins)) return nullptr;
    if (!put_request(self, text, begins, request)) return PyLong_FromSsize_t(NOT_LAUNCHED);
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = run(self, spec, text, request);
    Py_END_ALLOW_THREADS
    if (error) return fail(error);
    return PyLong_FromSsize_t(num_ids(self, static_cast<size_t>(begins.len) / 8 - 1));
}

constexpr int WITH_KIND = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS;

// Returns NOT_LAUNCHED for an object that is not a contiguous array.
PyObject* not_launched() {
    PyErr_Clear();
    return PyLong_FromSsize_t(NOT_LAUNCHED);
}

// Returns null with TypeError if the object is not a LaunchSpec.
const LaunchSpec* spec_of(PyObject* given) {
    if (Py_IS_TYPE(given, spec_type)) return reinterpret_cast<LaunchSpec*>(given);
    PyErr_SetString(PyExc_TypeError, "a LaunchSpec is expected");
    return nullptr;
}

uint32_t uint32_of(PyObject* given) { return static_cast<uint32_t>(PyLong_AsUnsignedLong(given)); }

PyObject* encode(Launcher* self, PyObject* const* arguments, Py_ssize_t given) {
    if (!has_arguments(given, 9)) return nullptr;
    const LaunchSpec* spec = spec_of(arguments[0]);
    if (!spec) return nullptr;
    Request request = {uint32_of(arguments[1]), uint32_of(arguments[3]), arguments[5] == Py_True, arguments[6] == Py_True,
                       PyLong_AsUnsignedLongLong(arguments[7]), PyLong_AsUnsignedLongLong(arguments[8])};
    Py_buffer text, begins;
    if (PyErr_Occurred()) return nullptr;
    if (request.source > COPIED) return PyErr_Format(PyExc_ValueError, "there is no source %u", request.source);
    if (PyObject_GetBuffer(arguments[2], &text, WITH_KIND) < 0) return not_launched();
    PyObject* answer = nullptr;
    if (PyObject_GetBuffer(arguments[4], &begins, WITH_KIND) == 0) {
        answer = encode_rows(self, *spec, text, begins, request);
        PyBuffer_Release(&begins);
    } else {
        answer = not_launched();
    }
    PyBuffer_Release(&text);  // A kernel may read it in place until here.
    return answer;
}

// Returns the number of the first row that ends before it begins, or None.
PyObject* put_batch_method(Launcher* self, PyObject* arguments, PyObject* keywords) {
    static const char* names[] = {"begins", "host_text", "num_bytes", "has_flags", "has_limits", "is_augmented",
                                  "validates", "planned_fallback", nullptr};
    PyObject* given;
    unsigned long long host_text = 0, num_bytes = 0, planned_fallback = 0;
    int has_flags = 0, has_limits = 0, is_augmented = 0, validates = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$KKppppK", const_cast<char**>(names), &given, &host_text,
                                     &num_bytes, &has_flags, &has_limits, &is_augmented, &validates, &planned_fallback))
        return nullptr;
    Py_buffer begins;
    if (PyObject_GetBuffer(given, &begins, WITH_KIND) < 0) return nullptr;
    Batch batch = {host_text, num_bytes, has_flags != 0, has_limits != 0, is_augmented != 0, validates != 0, planned_fallback};
    PyObject* found = nullptr;
    if (!is_int64s(begins)) {
        PyErr_SetString(PyExc_TypeError, "rows begin at int64s");
    } else if (has_room(self, 0, begins)) {
        found = put_batch(self, begins, batch) ? Py_NewRef(Py_None) : first_descent(begins);
    }
    PyBuffer_Release(&begins);
    return found;
}

PyObject* answer_in_method(Launcher* self, PyObject* post_processed) {
    answer_in(self, PyObject_IsTrue(post_processed) == 1);
    Py_RETURN_NONE;
}

PyObject* launch_method(DriverObject* self, PyObject* const* arguments, Py_ssize_t given) {
    const LaunchSpec* spec = has_arguments(given, 3) ? spec_of(arguments[0]) : nullptr;
    if (!spec) return nullptr;
    uint32_t blocks = uint32_of(arguments[1]);
    uint64_t job = PyLong_AsUnsignedLongLong(arguments[2]);
    if (PyErr_Occurred()) return nullptr;
    int error;
    Py_BEGIN_ALLOW_THREADS
    {
        CurrentContext current(self->driver);
        error = current.error;
        if (!error) error = launch_kernel(self->driver, *spec, blocks, job);
    }
    Py_END_ALLOW_THREADS
    if (error) return fail(error);
    Py_RETURN_NONE;
}

void free_object(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

void free_launcher(Launcher* self) {
    for (Py_buffer* buffer : {&self->job, &self->text, &self->begins, &self->status, &self->offsets})
        PyBuffer_Release(buffer);
    free_object(reinterpret_cast<PyObject*>(self));
}

PyObject* new_spec(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    static const char* names[] = {"function", "threads", "shared_bytes", "max_blocks", "takes_job", "is_grid", "is_dependent",
                                  nullptr};
    unsigned long long function;
    unsigned int threads, shared_bytes, max_blocks;
    int takes_job, is_grid, is_dependent;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "$KIIIppp", const_cast<char**>(names), &function, &threads,
                                     &shared_bytes, &max_blocks, &takes_job, &is_grid, &is_dependent))
        return nullptr;
    auto* self = reinterpret_cast<LaunchSpec*>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->function = function;
    self->threads = threads;
    self->shared_bytes = shared_bytes;
    self->max_blocks = max_blocks;
    self->takes_job = takes_job != 0;
    self->is_grid = is_grid != 0;
    self->is_dependent = is_dependent != 0;
    return reinterpret_cast<PyObject*>(self);
}

template <typename Function> Function* function_at(unsigned long long address) {
    return reinterpret_cast<Function*>(static_cast<uintptr_t>(address));
}

PyObject* new_driver(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    static const char* names[] = {"get_context", "set_context", "copy_in", "launch", "synchronize", "context", "stream", nullptr};
    unsigned long long get_context, set_context, copy_in, launch, synchronize, context, stream;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "$KKKKKKK", const_cast<char**>(names), &get_context, &set_context,
                                     &copy_in, &launch, &synchronize, &context, &stream))
        return nullptr;
    auto* self = reinterpret_cast<DriverObject*>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->driver.get_context = function_at<int(void**)>(get_context);
    self->driver.set_context = function_at<int(void*)>(set_context);
    self->driver.copy_in = function_at<int(uint64_t, const void*, size_t, void*)>(copy_in);
    self->driver.launch = function_at<int(const Config*, void*, void**, void**)>(launch);
    self->driver.synchronize = function_at<int(void*)>(synchronize);
    self->driver.context = reinterpret_cast<void*>(context);
    self->driver.stream = reinterpret_cast<void*>(stream);
    return reinterpret_cast<PyObject*>(self);
}

// A member of a struct, and the key of the dict from which it is read.
template <typename Struct, typename Number> struct Named {
    const char* name;
    Number Struct::* place;
};

constexpr Named<Words, uint32_t> WORD_NAMES[] = {
    {"host_text", &Words::host_text},
    {"num_bytes", &Words::num_bytes},
    {"num_rows", &Words::num_rows},
    {"row_flags", &Words::row_flags},
    {"row_max_length", &Words::row_max_length},
    {"row_refused", &Words::row_refused},
    {"validates", &Words::validates},
    {"planned_fallback", &Words::planned_fallback},
    {"id_bits", &Words::id_bits},
    {"post_processed", &Words::post_processed},
    {"answer_ids", &Words::answer_ids},
    {"answer_offsets", &Words::answer_offsets},
    {"host_ids", &Words::host_ids},
    {"text", &Words::text},
    {"sent_text", &Words::sent_text},
    {"sent_begins", &Words::sent_begins},
    {"own_spans", &Words::own_spans},
    {"random_seed", &Words::random_seed},
    {"first_row", &Words::first_row},
    {"substitution_rate", &Words::substitution_rate},
};
static_assert(sizeof(Words) == sizeof(uint32_t) * std::size(WORD_NAMES), "all words have names");

constexpr Named<StatusWords, uint32_t> STATUS_NAMES[] = {
    {"NOT_UTF8", &StatusWords::not_utf8},
    {"FAULT", &StatusWords::fault},
    {"TRUNCATED", &StatusWords::truncated},
    {"FALLBACK", &StatusWords::fallback},
    {"NOT_COVERED", &StatusWords::not_covered},
};
static_assert(sizeof(StatusWords) == sizeof(uint32_t) * std::size(STATUS_NAMES), "all words have names");

constexpr Named<Fields, uint64_t> FIELD_NAMES[] = {
    {"ids", &Fields::ids},
    {"post_processed_ids", &Fields::post_processed_ids},
    {"id_offsets", &Fields::id_offsets},
    {"post_processed_offsets", &Fields::post_processed_offsets},
    {"row_refused", &Fields::row_refused},
    {"text", &Fields::text},
    {"augmented_text", &Fields::augmented_text},
    {"row_begins", &Fields::row_begins},
    {"row_flags", &Fields::row_flags},
    {"row_max_length", &Fields::row_max_length},
};
static_assert(sizeof(Fields) == sizeof(uint64_t) * std::size(FIELD_NAMES), "all fields have names");

// Fills a struct from a dict. Missing names are 0 if it `may_lack` them; otherwise returns false with KeyError.
template <typename Struct, typename Number, size_t COUNT>
bool read_named(PyObject* dict, const Named<Struct, Number> (&names)[COUNT], Struct* numbers, bool may_lack = false) {
    for (const auto& each : names) {
        PyObject* value = PyDict_GetItemString(dict, each.name);
        if (!value && !may_lack) PyErr_SetString(PyExc_KeyError, each.name);
        numbers->*each.place = value ? static_cast<Number>(PyLong_AsUnsignedLongLong(value)) : 0;
        if (PyErr_Occurred()) return false;
    }
    return true;
}

PyObject* new_launcher(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    static const char* names[] = {"driver", "words", "status_words", "fields", "job", "text", "row_begins", "status",
                                  "offsets", nullptr};
    PyObject *driver, *words, *status_words, *fields, *job, *text, *begins, *status, *offsets;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O!O!O!$OOOOO", const_cast<char**>(names), driver_type,
                                     &driver, &PyDict_Type, &words, &PyDict_Type, &status_words, &PyDict_Type, &fields,
                                     &job, &text, &begins, &status, &offsets))
        return nullptr;
    auto* self = reinterpret_cast<Launcher*>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->driver = reinterpret_cast<DriverObject*>(driver)->driver;
    bool is_complete = read_named(words, WORD_NAMES, &self->words) &&
                       read_named(status_words, STATUS_NAMES, &self->status_words) &&
                       read_named(fields, FIELD_NAMES, &self->fields, true) &&
                       PyObject_GetBuffer(job, &self->job, PyBUF_WRITABLE) == 0 &&
                       PyObject_GetBuffer(text, &self->text, PyBUF_WRITABLE) == 0 &&
                       PyObject_GetBuffer(begins, &self->begins, PyBUF_WRITABLE) == 0 &&
                       PyObject_GetBuffer(status, &self->status, PyBUF_WRITABLE) == 0 &&
                       PyObject_GetBuffer(offsets, &self->offsets, PyBUF_SIMPLE) == 0;
    if (is_complete) return reinterpret_cast<PyObject*>(self);
    Py_DECREF(self);
    return nullptr;
}

template <typename Method> PyCFunction method(Method function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMemberDef spec_members[] = {
    {"function", T_ULONGLONG, offsetof(LaunchSpec, function), READONLY, "Address of the driver's function."},
    {"threads", T_UINT, offsetof(LaunchSpec, threads), READONLY, "Threads of a block."},
    {"shared_bytes", T_UINT, offsetof(LaunchSpec, shared_bytes), READONLY, "Dynamic shared memory of a block."},
    {"max_blocks", T_UINT, offsetof(LaunchSpec, max_blocks), READONLY, "Blocks of a launch at most; 0: any number."},
    {"takes_job", T_BOOL, offsetof(LaunchSpec, takes_job), READONLY, "Whether the Job comes with the launch."},
    {"is_grid", T_BOOL, offsetof(LaunchSpec, is_grid), READONLY, "Whether all blocks must run at a time."},
    {"is_dependent", T_BOOL, offsetof(LaunchSpec, is_dependent), READONLY, "Whether the launch comes early."},
    {nullptr, 0, 0, 0, nullptr},
};

PyMethodDef driver_methods[] = {
    {"launch", method(launch_method), METH_FASTCALL,
     "launch(spec, blocks, job, /): launches a kernel on the Job at an address; raises LaunchFailed."},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef launcher_methods[] = {
    {"put_batch", method(put_batch_method), METH_VARARGS | METH_KEYWORDS,
     "put_batch(begins, *, host_text=0, num_bytes=0, ...): writes the Job's words; returns None, or the first row that descends."},
    {"answer_in", method(answer_in_method), METH_O, "answer_in(post_processed, /): chooses the fields that hold the answer."},
    {"encode", method(encode), METH_FASTCALL,
     "encode(spec, blocks, text, source, begins, post_processed, validates, id_bits, ids, /): returns the number of ids, "
     "NOT_LAUNCHED or MORE_TO_DO."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot spec_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_spec)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_object)},
    {Py_tp_members, spec_members},
    {0, nullptr},
};
PyType_Slot driver_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_driver)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_object)},
    {Py_tp_methods, driver_methods},
    {0, nullptr},
};
PyType_Slot launcher_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_launcher)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_launcher)},
    {Py_tp_methods, launcher_methods},
    {0, nullptr},
};
PyType_Spec spec_spec{"gpu.host._fast_launch.LaunchSpec", sizeof(LaunchSpec), 0, Py_TPFLAGS_DEFAULT, spec_slots};
PyType_Spec driver_spec{"gpu.host._fast_launch.Driver", sizeof(DriverObject), 0, Py_TPFLAGS_DEFAULT, driver_slots};
PyType_Spec launcher_spec{"gpu.host._fast_launch.Launcher", sizeof(Launcher), 0, Py_TPFLAGS_DEFAULT, launcher_slots};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "gpu.host._fast_launch", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

bool add_type(PyObject* to, const char* name, PyObject* type) {
    return type && PyModule_AddObjectRef(to, name, type) == 0;
}

}  // namespace

PyMODINIT_FUNC PyInit__fast_launch() {
    PyObject* made = PyModule_Create(&module);
    PyObject* spec = PyType_FromSpec(&spec_spec);
    PyObject* driver = PyType_FromSpec(&driver_spec);
    PyObject* launcher = PyType_FromSpec(&launcher_spec);
    spec_type = reinterpret_cast<PyTypeObject*>(spec);
    driver_type = reinterpret_cast<PyTypeObject*>(driver);
    bool is_complete = made && add_type(made, "LaunchSpec", spec) && add_type(made, "Driver", driver) &&
                       add_type(made, "Launcher", launcher);
    return is_complete ? made : nullptr;
}
