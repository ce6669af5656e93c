// Finds the elements of one list in the JSON of an object, without reading them.
//
//     find_elements(body, key) -> (begin, end, places) or None
//
//     {"model": "m", "messages": [{"role": "user"}, {"role": "tool"}]}, messages
//                                ^begin                              ^end
//     places: begin and end of each element, from `begin` on, as uint32
//
// It returns None for everything unusual, and another reader then reads the body. It checks only strings and brackets,
// so an element that it finds may still be invalid JSON.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

constexpr int MAX_DEPTH = 200;                      // Every reader of elements accepts this depth.
constexpr Py_ssize_t MAX_BYTES_LOCKED = 1 << 20;    // About 0.2 ms; more are read without Python's lock.
constexpr Py_ssize_t MAX_BYTES = (Py_ssize_t{1} << 32) - 1;  // Places have 32 bits.

class Reader {
   public:
    explicit Reader(std::string_view text) : begin_(text.data()), at_(begin_), end_(begin_ + text.size()) {}

    const char* at() const { return at_; }

    void skip_space() {
        while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) at_++;
    }

    bool is_at_end() const { return at_ == end_; }

    bool is_next(char wanted) const { return at_ < end_ && *at_ == wanted; }

    bool skip(char wanted) {
        if (!is_next(wanted)) return false;
        at_++;
        return true;
    }

    // Skips the rest of a string, of which the opening quote was skipped.
    bool skip_string() {
        const char* first = at_;
        while (at_ < end_) {
            const auto* quote = static_cast<const char*>(std::memchr(at_, '"', end_ - at_));
            if (!quote) return false;
            const char* escape = quote;
            while (escape > first && escape[-1] == '\\') escape--;
            at_ = quote + 1;
            if ((quote - escape) % 2 == 0) return true;
        }
        return false;
    }

    // Skips an object or a list. Its brackets need not match; the reader of the element reports that.
    bool skip_container() {
        int depth = 0;
        while (at_ < end_) {
            switch (*at_++) {
                case '"':
                    if (!skip_string()) return false;
                    break;
                case '{':
                case '[':
                    if (++depth > MAX_DEPTH) return false;
                    break;
                case '}':
                case ']':
                    if (--depth == 0) return true;
                    break;
                default:
                    break;
            }
        }
        return false;
    }

    bool skip_value() {
        if (skip('"')) return skip_string();
        if (is_next('{') || is_next('[')) return skip_container();
        while (at_ < end_ && !std::memchr(",:{}[]\" \n\r\t", *at_, 11)) at_++;
        return true;
    }

   private:
    const char* begin_;
    const char* at_;
    const char* end_;
};

struct Elements {
    const char* begin = nullptr;  // The opening bracket of the list; null: it was not found.
    const char* end = nullptr;    // Behind its closing bracket.
    std::vector<uint32_t> places;
};

bool read_list(Reader& reader, Elements& found) {
    if (found.begin || !reader.is_next('[')) return false;  // A key that comes twice, or no list.
    found.begin = reader.at();
    reader.skip('[');
    do {
        reader.skip_space();
        if (!reader.is_next('{')) return false;
        found.places.push_back(static_cast<uint32_t>(reader.at() - found.begin));
        if (!reader.skip_container()) return false;
        found.places.push_back(static_cast<uint32_t>(reader.at() - found.begin));
        reader.skip_space();
    } while (reader.skip(','));
    bool is_closed = reader.skip(']');
    found.end = reader.at();
    return is_closed;
}

// Finds the list; returns whether the object was read to its end and has it.
bool read_object(Reader& reader, std::string_view wanted, Elements& found) {
    reader.skip_space();
    if (!reader.skip('{')) return false;
    do {
        reader.skip_space();
        if (!reader.skip('"')) return false;
        const char* begin = reader.at();
        if (!reader.skip_string()) return false;
        std::string_view key(begin, reader.at() - begin - 1);
        if (key.find('\\') != key.npos) return false;  // With its escapes it may be the wanted key.
        reader.skip_space();
        if (!reader.skip(':')) return false;
        reader.skip_space();
        if (!(key == wanted ? read_list(reader, found) : reader.skip_value())) return false;
        reader.skip_space();
    } while (reader.skip(','));
    if (!reader.skip('}')) return false;
    reader.skip_space();
    return reader.is_at_end() && found.begin;
}

PyObject* find_elements(PyObject*, PyObject* const* arguments, Py_ssize_t num_arguments) {
    if (num_arguments != 2 || !PyBytes_Check(arguments[0]) || !PyBytes_Check(arguments[1])) {
        return PyErr_Format(PyExc_TypeError, "a body and a key are expected, as bytes");
    }
    std::string_view body(PyBytes_AS_STRING(arguments[0]), PyBytes_GET_SIZE(arguments[0]));
    std::string_view key(PyBytes_AS_STRING(arguments[1]), PyBytes_GET_SIZE(arguments[1]));
    if (static_cast<Py_ssize_t>(body.size()) > MAX_BYTES) Py_RETURN_NONE;
    Reader reader(body);
    Elements found;
    bool is_found = false, has_memory = true;
    PyThreadState* unlocked = static_cast<Py_ssize_t>(body.size()) > MAX_BYTES_LOCKED ? PyEval_SaveThread() : nullptr;
    try {
        is_found = read_object(reader, key, found);
    } catch (const std::bad_alloc&) {
        has_memory = false;
    }
    if (unlocked) PyEval_RestoreThread(unlocked);
    if (!has_memory) return PyErr_NoMemory();
    if (!is_found) Py_RETURN_NONE;
    const char* places = reinterpret_cast<const char*>(found.places.data());
    return Py_BuildValue("nny#", Py_ssize_t{found.begin - body.data()}, Py_ssize_t{found.end - body.data()}, places,
                         static_cast<Py_ssize_t>(found.places.size() * sizeof(uint32_t)));
}

PyMethodDef methods[] = {
    {"find_elements", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(find_elements)), METH_FASTCALL,
     "find_elements(body, key, /): Find the elements of a list in the JSON of an object."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "service.core._json_elements", nullptr, 0, methods,
                      nullptr,               nullptr,                       nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__json_elements() { return PyModule_Create(&module); }
