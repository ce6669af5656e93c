// Encodes the rows of a batch by several threads, long rows in parts.
//
// A row is cut where all letters nearby are bases, and neighbouring parts overlap. Each part is encoded as a text of
// its own. Two parts are joined at a common boundary where the tokens on both sides are compatible. Then all
// neighbouring tokens are compatible, so the ids are those of the whole row (docs/internals/text-bpe.md, *Pairs
// decide*).
//
//     part 0   ..|---|--|----|---|-|            cut ^, overlap of MARGIN letters on both sides
//     part 1            |-|---|-|----|..
//                          ^
//                joined     |: a boundary of both
//
// If two parts have no such boundary, which is rare, the right one is encoded again from a boundary of the left one.
#pragma once

#include <mutex>
#include <utility>

#include "../../native/share_tasks.hpp"
#include "rows.hpp"

namespace dna {

constexpr int64_t MARGIN = MAX_LETTERS;
constexpr int64_t MIN_TASK_BYTES = 4 * MARGIN;
constexpr int64_t THREAD_BYTES = 1 << 13;  // They take 30 to 60 us, longer than waking a thread.
constexpr int64_t THREAD_IDS = 1 << 16;    // The same for ids that are copied to fresh memory.
constexpr size_t KEPT_IDS = size_t{1} << 20;   // Of a thread's memory for ids between two tasks.

// What becomes of special tokens in a text.
enum Mode { MATCH, PLAIN, REFUSE, NUM_MODES };

struct Vocabulary {
    const Tokens tokens;
    const LastTokens tables;
    const Repeats repeats;
    Rules rules[NUM_MODES]{};   // They differ in special tokens alone.

    Vocabulary(const GivenTokens& given, int k, uint8_t num_bases)
        : tokens(given, k), tables(tokens, k), repeats(make_repeats(tokens, tables, num_bases)) {}

    bool may_cut() const { return rules[MATCH].motifs.empty() && rules[MATCH].whole.empty(); }
};

// Rows, or a part of one row, that a thread encodes at once.
struct Task {
    int64_t first_row, end_row;
    int64_t begin, end;         // Bytes of the batch, margins included.
    bool is_row_begin = true, is_row_end = true;
    Ids out;
    size_t first_id = 0, end_id = 0;   // Of `out`, those of the row after joining.
    size_t latest_stretch = 0;         // The place in `out` where the latest stretch begins.
    int64_t ids_in_front = 0;          // Of the row's parts in front of this one.

    bool is_part() const { return !is_row_begin || !is_row_end; }
    size_t num_ids() const { return end_id - first_id; }
};

class BatchEncoder {
   public:
    BatchEncoder(const Vocabulary& vocabulary, Mode mode, const uint8_t* data, const int64_t* offsets, size_t num_rows,
                 bool with_spans, int num_threads, int64_t task_bytes)
        : counts(num_rows), reasons(num_rows, NONE), vocabulary_(vocabulary),
          rules_(vocabulary.rules[mode]), data_(data), offsets_(offsets), with_spans_(with_spans),
          shares_(make_shares(offsets[num_rows] - offsets[0], num_threads, THREAD_BYTES, task_bytes)) {
        make_tasks();
    }

    std::vector<int64_t> counts;    // The ids of each row,
    std::vector<uint8_t> reasons;   // or why it has none.

    bool with_spans() const { return with_spans_; }
    size_t num_rows() const { return counts.size(); }
    int64_t num_ids() const {
        int64_t sum = 0;
        for (int64_t count : counts) sum += count;
        return sum;
    }

    void encode() {
        share_tasks(tasks_.size(), shares_.num_threads, [&] { return make_encoder(); },
                    [&](RowEncoder& encoder, size_t task) { encode_task(encoder, tasks_[task]); });
        RowEncoder encoder = make_encoder();
        for (size_t i = 1; i < tasks_.size(); i++) {
            if (tasks_[i].is_row_begin || reasons[row_of(i)] || join(encoder, tasks_[i - 1], tasks_[i])) continue;
            i = encode_whole_row(encoder, i);
        }
        for (Task& task : tasks_) {
            if (!task.is_part() || reasons[static_cast<size_t>(task.first_row)]) continue;
            int64_t& count = counts[static_cast<size_t>(task.first_row)];
            task.ids_in_front = count;
            count += static_cast<int64_t>(task.num_ids());
        }
    }

    // The begin and end tokens of each row.
    struct Around {
        const int32_t *prefix, *suffix;
        size_t prefix_size, suffix_size;
    };

    // Writes the ids of each row from its offset on, with begin and end tokens, and their spans if these are requested.
    template <typename Id>
    void write(const int64_t* out_offsets, const Around& around, Id* ids, Span* spans) {
        auto most = static_cast<int>(std::min<int64_t>(shares_.num_threads, num_ids() / THREAD_IDS));
        share_tasks(tasks_.size(), most, [] { return 0; }, [&](int, size_t number_of_task) {
            Task& task = tasks_[number_of_task];
            size_t from = task.first_id;
            for (int64_t row = task.first_row; row < task.end_row; row++) {
                auto number = static_cast<size_t>(row);
                if (reasons[number]) continue;
                size_t count = task.is_part() ? task.num_ids() : static_cast<size_t>(counts[number]);
                int64_t place = out_offsets[row] + task.ids_in_front;
                if (task.is_row_begin) place = put(around.prefix, around.prefix_size, place, ids, spans);
                else place += static_cast<int64_t>(around.prefix_size);
                std::copy_n(task.out.ids.data() + from, count, ids + place);
                if (spans) put_spans(task, from, count, spans + place);
                place += static_cast<int64_t>(count);
                if (task.is_row_end) put(around.suffix, around.suffix_size, place, ids, spans);
                from += count;
            }
        });
    }

   private:
    size_t row_of(size_t task) const { return static_cast<size_t>(tasks_[task].first_row); }
    RowEncoder make_encoder() const {
        return {vocabulary_.tokens, vocabulary_.tables, vocabulary_.repeats, rules_, with_spans_};
    }

    void make_tasks() {
        auto num_rows = static_cast<int64_t>(counts.size());
        for (int64_t row = 0; row < num_rows;) {
            int64_t begin = offsets_[row], next = row + 1;
            while (next < num_rows && offsets_[next + 1] - begin <= shares_.task_bytes) next++;
            if (next == row + 1 && offsets_[next] - begin > 2 * shares_.task_bytes && vocabulary_.may_cut()) {
                cut_row(row);
            } else {
                tasks_.push_back({row, next, begin, offsets_[next]});
            }
            row = next;
        }
    }

    // Makes a task of each part of a row.
    void cut_row(int64_t row) {
        int64_t end = offsets_[row + 1], begin = offsets_[row];
        bool is_begin = true;
        for (int64_t cut = find_cut(begin + shares_.task_bytes, end); cut < end; cut = find_cut(cut + shares_.task_bytes, end)) {
            tasks_.push_back({row, row + 1, begin, cut + MARGIN, is_begin, false});
            begin = cut - MARGIN;
            is_begin = false;
        }
        tasks_.push_back({row, row + 1, begin, end, is_begin, true});
    }

    // The first place from one on that has only bases near it; `end` if there is none long before the row's end.
    int64_t find_cut(int64_t place, int64_t end) const {
        int64_t num_bases = 0;
        for (int64_t i = place - MARGIN; i < end - shares_.task_bytes / 2; i++) {
            num_bases = rules_.codes[data_[i]] < FIRST_MIXED ? num_bases + 1 : 0;
            if (num_bases == 2 * MARGIN) return i + 1 - MARGIN;
        }
        return end;
    }

    void encode_task(RowEncoder& encoder, Task& task) {
        Ids& out = scratch();
        out.clear();
        for (int64_t row = task.first_row; row < task.end_row; row++) {
            auto number = static_cast<size_t>(row);
            int64_t begin = task.is_part() ? task.begin : offsets_[row];
            int64_t end = task.is_part() ? task.end : offsets_[row + 1];
            size_t num_ids = out.ids.size(), num_spans = out.spans.size();
            Reason reason = encoder.encode(data_ + begin, data_ + end, task.is_row_begin, task.is_row_end, out);
            if (reason) {
                set_reason(number, reason);
                out.ids.resize(num_ids);
                out.spans.resize(num_spans);
            } else if (!task.is_part()) {
                counts[number] = static_cast<int64_t>(out.ids.size() - num_ids);
            }
        }
        task.end_id = out.ids.size();
        if (out.ids.capacity() > KEPT_IDS) task.out = std::exchange(out, {});
        else task.out = out;
        task.latest_stretch = encoder.latest_stretch();
    }

    // The memory of a thread for the ids of a task, of which the task gets a copy of the right size,
    // or the memory itself if it is large: the threads of a service live as long as it does.
    static Ids& scratch() {
        thread_local Ids ids;
        return ids;
    }

    // Parts of a row may be left for different reasons by several threads; the row keeps one of them.
    void set_reason(size_t row, Reason reason) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!reasons[row]) reasons[row] = reason;
    }

    // The boundaries of a task's tokens from `begin` to `end`, in bytes of the batch, and the token behind each.
    struct Boundary {
        int64_t place;
        size_t id;
    };

    // The boundaries of a left part, from its end back.
    std::vector<Boundary> boundaries_back(const Task& task, int64_t begin) const {
        std::vector<Boundary> found;
        int64_t place = task.end;
        for (size_t id = task.end_id; place >= begin; id--) {
            if (id <= std::max(task.latest_stretch, task.first_id)) break;  // A token is in front of each.
            found.push_back({place, id});
            place -= vocabulary_.tokens.length_of(task.out.ids[id - 1]);
        }
        return found;
    }

    // Joins a part of a row to the part in front of it; returns false if no common boundary is compatible.
    bool join(RowEncoder& encoder, Task& left, Task& right) {
        std::vector<Boundary> boundaries = boundaries_back(left, right.begin);
        if (join_at_common(left, right, boundaries)) return true;
        for (const Boundary& boundary : boundaries) {
            right.begin = boundary.place;
            right.first_id = 0;
            encode_task(encoder, right);
            if (right.num_ids() && fits(left, boundary.id, right, 0)) {
                left.end_id = boundary.id;
                return true;
            }
        }
        return false;
    }

    // Encodes a row of parts at once: its first task has all ids, the others none. Returns the row's last task.
    size_t encode_whole_row(RowEncoder& encoder, size_t task) {
        size_t first = task, last = task;
        while (!tasks_[first].is_row_begin) first--;
        while (!tasks_[last].is_row_end) last++;
        for (size_t i = first; i <= last; i++) {
            tasks_[i].out.clear();
            tasks_[i].first_id = tasks_[i].end_id = 0;
        }
        Task& whole = tasks_[first];
        size_t row = row_of(first);
        Reason reason = encoder.encode(data_ + offsets_[row], data_ + offsets_[row + 1], true, true, whole.out);
        if (reason) set_reason(row, reason);
        whole.end_id = whole.out.ids.size();
        return last;
    }

    bool join_at_common(Task& left, Task& right, const std::vector<Boundary>& boundaries) const {
        size_t id = 0;
        int64_t place = right.begin;
        for (auto boundary = boundaries.rbegin(); boundary != boundaries.rend(); boundary++) {
            while (place < boundary->place && id < right.end_id)
                place += vocabulary_.tokens.length_of(right.out.ids[id++]);
            if (place != boundary->place || id == right.end_id || !fits(left, boundary->id, right, id)) continue;
            left.end_id = boundary->id;
            right.first_id = id;
            return true;
        }
        return false;
    }

    bool fits(const Task& left, size_t end_id, const Task& right, size_t first_id) const {
        return vocabulary_.tokens.may_follow(left.out.ids[end_id - 1], right.out.ids[first_id]);
    }

    template <typename Id>
    static int64_t put(const int32_t* added, size_t count, int64_t place, Id* ids, Span* spans) {
        for (size_t i = 0; i < count; i++, place++) {
            ids[place] = static_cast<Id>(added[i]);
            if (spans) spans[place] = {0, 0};
        }
        return place;
    }

    void put_spans(const Task& task, size_t from, size_t count, Span* spans) const {
        int64_t shift = task.is_part() ? task.begin - offsets_[task.first_row] : 0;
        for (size_t i = 0; i < count; i++)
            spans[i] = {task.out.spans[from + i].begin + shift, task.out.spans[from + i].end + shift};
    }

    const Vocabulary& vocabulary_;
    const Rules& rules_;
    const uint8_t* data_;
    const int64_t* offsets_;
    const bool with_spans_;
    const Shares shares_;
    std::vector<Task> tasks_;
    std::mutex mutex_;
};

}  // namespace dna
