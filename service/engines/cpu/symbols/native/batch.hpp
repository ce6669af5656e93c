// Encodes the rows of a batch by several threads; long rows are cut into parts.
//
//     measure    decides by the flags of a row's bytes how to encode it, or why it is skipped; counts its ids
//     write      writes the ids of every part to their places
//
// The ids of a part are those that begin in it; a part reads up to k letters behind its end. K-mers count from the
// begin of a run of letters, so a part needs the number of letters of its first run that are in front of it:
// `Part::before`.
//
//     row       A C G T A C G T A C N A C        k = 3, stride 3
//     parts     |- - - - - -|- - - - - - -|      the second part has before = 6 and begins with the k-mer GTA
//
// `measure` reads no bytes where counts follow from lengths and rows are only written. Then `write` finds the skipped
// rows, whose ids are void.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "../../native/share_tasks.hpp"
#include "kmers.hpp"

namespace symbols {

// The minimum number of bytes for a thread: they take about 30 us, as long as waking it.
constexpr int64_t CHARACTERS_A_THREAD = 1 << 17, KMERS_A_THREAD = 1 << 16;

struct Options {
    bool is_other_strand, is_circular, has_spans, is_counted;   // is_counted: only counts are needed.
};

// Rows, or a part of one row, that a thread encodes at once.
struct Part {
    int64_t first_row, end_row;
    int64_t begin, end;                // Places in the row, if this is a part of one.
    bool is_row_begin = true, is_row_end = true;
    uint8_t flags = 0;
    int64_t before = 0;                // Letters of the run that is cut at `begin`, in front of it.
    int64_t behind = 0;                // Letters of the run that is cut at `end`, within the part.
    int64_t count = 0, first_id = 0;   // The number of its ids, and of the ids of the row's parts in front of it.

    bool is_part() const { return !is_row_begin || !is_row_end; }
};

// Letters of a row as it is encoded, from a place on.
struct Letters {
    const uint8_t* bytes;
    int64_t place, end;

    const uint8_t* at(int64_t i) const { return bytes + (i - place); }
};

class BatchEncoder {
   public:
    // `rules` are those of the other strand's letters, if it is encoded.
    BatchEncoder(const Rules& rules, const uint8_t* data, const int64_t* offsets, size_t num_rows, Options options,
                 int num_threads, int64_t task_bytes)
        : counts(num_rows), reasons(num_rows, NONE), rules_(rules), data_(data), offsets_(offsets), options_(options),
          shares_(make_shares(offsets[num_rows] - offsets[0], num_threads,
                              rules.is_characters() ? CHARACTERS_A_THREAD : KMERS_A_THREAD, task_bytes)),
          flags_(num_rows) {
        make_parts();
    }

    std::vector<int64_t> counts;     // The ids of each row,
    std::vector<uint8_t> reasons;    // or why it has none.

    bool has_spans() const { return options_.has_spans; }
    size_t num_rows() const { return counts.size(); }

    void measure() {
        if (rules_.has_fixed_counts() && !options_.is_counted) return measure_lengths();
        share([&](Thread& thread, Part& part) {
            if (part.is_part()) read_flags(thread, part);
            else for (int64_t row = part.first_row; row < part.end_row; row++) measure_row(thread, row);
        });
        bool has_cut_runs = false;
        for (size_t i = 0; i < parts_.size(); i++)
            if (parts_[i].is_part() && parts_[i].is_row_begin) has_cut_runs |= decide_cut_row(i);
        if (!has_cut_runs) return;
        share([&](Thread& thread, Part& part) { if (part.is_part()) count_part(thread, part); });
        add_up();
    }

    // Writes the ids of each row from its offset on. Without measuring, rows get their reasons here; the ids of such
    // rows are void.
    template <typename Id>
    void write(const int64_t* out_offsets, const Around& around, Id* ids, Span* spans) {
        share([&](Thread& thread, Part& part) {
            for (int64_t row = part.first_row; row < part.end_row; row++) {
                if (reasons[static_cast<size_t>(row)]) continue;
                Places places = places_of(row);
                Writer<Id> writer(around, places, ids, spans, out_offsets[row]);
                if (part.is_row_begin) writer.begin_row();
                else writer.skip(part.first_id);
                uint8_t found = write_part(thread, part, row, writer);
                if (part.is_part()) part.flags |= found;
                else set_reason(row, found);
                if (part.is_row_end) writer.end_row();
            }
        });
        for (Part& part : parts_)
            if (part.is_part() && part.first_row < part.end_row) set_reason(part.first_row, part.flags);
    }

   private:
    // What a thread needs for all of its parts.
    struct Thread {
        KmerEncoder kmers;
        std::vector<uint8_t> letters{};
    };

    int64_t sent_length(int64_t row) const { return offsets_[row + 1] - offsets_[row]; }
    // With the letters that a circular row repeats.
    int64_t length_of(int64_t row) const { return sent_length(row) + (options_.is_circular ? rules_.k - 1 : 0); }
    Places places_of(int64_t row) const {
        int64_t length = sent_length(row);
        int64_t shift = rules_.is_prepended ? length - (rules_.k - 1) : 0;
        return {length, shift, options_.is_other_strand, options_.is_circular};
    }

    void make_parts() {
        auto num_rows = static_cast<int64_t>(counts.size());
        // Only the span of a run of unknown letters ends far behind its begin.
        bool may_cut = !options_.has_spans || !(rules_.all_flags & BREAK);
        for (int64_t row = 0; row < num_rows;) {
            int64_t begin = offsets_[row], next = row + 1, length = offsets_[next] - begin;
            while (next < num_rows && offsets_[next + 1] - begin <= shares_.task_bytes) next++;
            if (next == row + 1 && length > 2 * shares_.task_bytes && may_cut) cut_row(row);
            else parts_.push_back({row, next, 0, 0});
            row = next;
        }
    }

    void cut_row(int64_t row) {
        int64_t length = length_of(row);
        for (int64_t begin = 0; begin < length; begin += shares_.task_bytes) {
            int64_t end = std::min(begin + shares_.task_bytes, length);
            parts_.push_back({row, row + 1, begin, end, begin == 0, end == length});
        }
    }

    template <typename Work>
    void share(Work work) {
        share_tasks(parts_.size(), shares_.num_threads, [&] { return Thread{KmerEncoder(rules_)}; },
                    [&](Thread& thread, size_t i) { work(thread, parts_[i]); });
    }

    // The letters of a row from `begin` to `end`: its own bytes, or a copy of a row that is reversed or wrapped.
    Letters read(Thread& thread, int64_t row, int64_t begin, int64_t end) const {
        const uint8_t* bytes = data_ + offsets_[row];
        if (!options_.is_other_strand && !options_.is_circular) return {bytes + begin, begin, end};
        Places places = places_of(row);
        thread.letters.resize(static_cast<size_t>(end - begin));
        for (int64_t place = begin; place < end;) {
            int64_t first = options_.is_circular ? (place + places.shift) % places.length : place;
            int64_t now = std::min(end - place, places.length - first);
            copy(bytes, places.length, first, now, thread.letters.data() + (place - begin));
            place += now;
        }
        return {thread.letters.data(), begin, end};
    }

    void copy(const uint8_t* bytes, int64_t length, int64_t first, int64_t count, uint8_t* letters) const {
        if (!options_.is_other_strand) {
            std::memcpy(letters, bytes + first, static_cast<size_t>(count));
            return;
        }
        const uint8_t* end = bytes + (length - first);
        for (; count >= 8; count -= 8, letters += 8) {
            uint64_t eight;
            std::memcpy(&eight, end -= 8, 8);
            eight = __builtin_bswap64(eight);
            std::memcpy(letters, &eight, 8);
        }
        for (; count; count--) *letters++ = *--end;
    }

    // The letters of a part, with one in front of it and k behind it.
    Letters read_around(Thread& thread, int64_t row, const Part& part) const {
        int64_t begin = part.is_part() ? part.begin : 0, end = part.is_part() ? part.end : length_of(row);
        return read(thread, row, std::max<int64_t>(0, begin - 1), std::min(end + rules_.k, length_of(row)));
    }

    // Measuring.

    void measure_lengths() {
        for (int64_t row = 0; row < static_cast<int64_t>(counts.size()); row++) {
            const uint8_t *begin = data_ + offsets_[row], *end = data_ + offsets_[row + 1];
            bool has_no_kmer = sent_length(row) < rules_.k;   // `write` reads none of its letters then.
            if (set_reason(row, has_no_kmer ? rules_.flags_of(begin, end) : 0)) continue;
            counts[static_cast<size_t>(row)] = count_whole(row);
        }
        for (Part& part : parts_)
            if (part.is_part()) part.first_id = std::min(part.begin, counts[static_cast<size_t>(part.first_row)]);
    }

    int64_t count_run(const Run& run) const {
        return rules_.is_characters() ? run.last - run.first : RunIds(rules_, run).count();
    }

    // The ids of a row that is one run of letters.
    int64_t count_whole(int64_t row) const { return count_run({0, length_of(row), 0, length_of(row)}); }

    // Sets the reason why a row with these flags is skipped; returns false if it is not skipped.
    bool set_reason(int64_t row, uint8_t flags) {
        Reason reason = NONE;
        uint8_t left = REFERENCE;
        if (options_.is_circular) left |= SPACE | SIGN;
        if (options_.is_other_strand) left |= HIGH;
        if (flags & left || (options_.is_circular && sent_length(row) < rules_.k)) reason = BY_REFERENCE;
        else if (flags & HIGH && rules_.has_code_points) reason = BY_CODE_POINTS;
        if (reason) reasons[static_cast<size_t>(row)] = reason;
        return reason != NONE;
    }

    void measure_row(Thread& thread, int64_t row) {
        auto number = static_cast<size_t>(row);
        int64_t length = length_of(row);
        if (options_.is_circular && set_reason(row, 0)) return;
        Letters letters = read(thread, row, 0, length);
        uint8_t flags = flags_[number] = rules_.flags_of(letters.bytes, letters.bytes + length);
        if (set_reason(row, flags)) return;
        if (flags & SPACE && rules_.has_words) {
            if (!(flags & SIGN) && are_words(letters)) counts[number] = (length + 1) / (rules_.k + 1);
            else set_reason(row, REFERENCE);
        } else if (flags & SIGN) {
            counts[number] = thread.kmers.split_at_signs(letters.bytes, length, [](int64_t, int64_t) {});
        } else if (flags & BREAK) {
            counts[number] = count_runs(letters, 0, length, 0);
        } else {
            counts[number] = count_whole(row);
        }
    }

    // Whether letters are k letters, one white space, k letters ...
    bool are_words(const Letters& letters) const {
        if ((letters.end + 1) % (rules_.k + 1)) return false;
        for (int64_t i = 0, place = 0; i < letters.end; i++, place = place == rules_.k ? 0 : place + 1)
            if (((rules_.flags[letters.bytes[i]] & SPACE) != 0) != (place == rules_.k)) return false;
        return true;
    }

    void read_flags(Thread& thread, Part& part) {
        if (options_.is_circular && sent_length(part.first_row) < rules_.k) return;
        Letters letters = read(thread, part.first_row, part.begin, part.end);
        const uint8_t *first = letters.bytes, *last = letters.at(part.end);
        part.flags = rules_.flags_of(first, last);
        const uint8_t* run = part.flags & BREAK ? last : first;
        while (run > first && !(rules_.flags[run[-1]] & BREAK)) run--;
        part.behind = last - run;
    }

    // Decides how to encode a row that is cut into parts: as a whole if it has words or signs. Returns whether its
    // parts must be counted.
    bool decide_cut_row(size_t first) {
        int64_t row = parts_[first].first_row, before = 0;
        uint8_t flags = 0;
        size_t end = first;
        for (bool is_end = false; !is_end; end++) {
            Part& part = parts_[end];
            flags |= part.flags;
            part.before = before;
            before = part.flags & BREAK ? part.behind : before + part.behind;
            is_end = part.is_row_end;
        }
        flags_[static_cast<size_t>(row)] = flags;
        if (set_reason(row, flags)) return false;
        if (!(flags & SIGN || (flags & SPACE && rules_.has_words))) return true;
        parts_[first].is_row_end = true;
        for (size_t i = first + 1; i < end; i++) parts_[i].end_row = parts_[i].first_row;
        Thread thread{KmerEncoder(rules_)};
        measure_row(thread, row);
        return false;
    }

    void count_part(Thread& thread, Part& part) {
        int64_t row = part.first_row;
        if (reasons[static_cast<size_t>(row)] || part.first_row == part.end_row) return;
        if (!(flags_[static_cast<size_t>(row)] & BREAK)) {
            part.count = count_run({0, length_of(row), part.begin, part.end});
        } else {
            Letters letters = read_around(thread, row, part);
            part.count = count_runs(letters, part.begin, part.end, part.before);
        }
    }

    void add_up() {
        for (Part& part : parts_) {
            if (!part.is_part()) continue;
            int64_t& count = counts[static_cast<size_t>(part.first_row)];
            part.first_id = count;
            count += part.count;
        }
    }

    int64_t count_runs(const Letters& letters, int64_t begin, int64_t end, int64_t before) const {
        int64_t count = 0;
        for_each_run(letters, begin, end, before, [&](Kind kind, const Run& run) {
            if (kind == LETTER) count += count_run(run);
            else if (kind == SINGLE) count += run.last - run.first;
            else count += kind == OTHER;
        });
        return count;
    }

    // Calls visit(kind, run) for the runs of one kind that have ids from `begin` to `end`.
    template <typename Visit>
    void for_each_run(const Letters& letters, int64_t begin, int64_t end, int64_t before, Visit visit) const {
        for (int64_t i = begin; i < end;) {
            auto kind = static_cast<Kind>(rules_.kinds[*letters.at(i)]);
            int64_t run_begin = i == begin && kind == LETTER ? i - before : i;
            int64_t run_end = i + (rules_.end_of_kind(letters.at(i), letters.at(letters.end)) - letters.at(i));
            int64_t last = std::min(run_end, end);
            bool is_begun = i == begin && i > letters.place && kind == OTHER && rules_.kinds[*letters.at(i - 1)] == OTHER;
            if (!is_begun) visit(kind, Run{run_begin, run_end, i, last});
            i = last;
        }
    }

    // Writing.

    // Writes the ids of a row or a part of it; returns the flags of its bytes where they were not measured.
    template <typename Id>
    uint8_t write_part(Thread& thread, const Part& part, int64_t row, Writer<Id>& writer) {
        int64_t begin = part.is_part() ? part.begin : 0, end = part.is_part() ? part.end : length_of(row);
        Letters letters = read_around(thread, row, part);
        uint8_t flags = flags_[static_cast<size_t>(row)];
        if (flags & SPACE && rules_.has_words) {
            thread.kmers.write_apart(letters.bytes, 0, (end + 1) / (rules_.k + 1), rules_.k + 1, writer);
        } else if (flags & SIGN) {
            write_split(thread, letters, writer);
        } else if (flags & BREAK) {
            write_runs(thread, letters, part, begin, end, writer);
        } else if (rules_.is_characters()) {
            return write_characters(rules_, letters.at(begin), begin, end - begin, writer);
        } else {
            return thread.kmers.write(letters.bytes, letters.place, {0, length_of(row), begin, end}, writer);
        }
        return 0;
    }

    template <typename Id>
    void write_runs(Thread& thread, const Letters& letters, const Part& part, int64_t begin, int64_t end,
                    Writer<Id>& writer) {
        for_each_run(letters, begin, end, part.before, [&](Kind kind, const Run& run) {
            if (kind == SINGLE || (kind == LETTER && rules_.is_characters()))
                write_characters(rules_, letters.at(run.first), run.first, run.last - run.first, writer);
            else if (kind == LETTER) thread.kmers.write(letters.bytes, letters.place, run, writer);
            else if (kind == OTHER) writer.put(&rules_.unknown_id, 1, run.begin, 0, run.end - run.begin);
        });
    }

    template <typename Id>
    void write_split(Thread& thread, const Letters& letters, Writer<Id>& writer) {
        thread.kmers.split_at_signs(letters.bytes, letters.end, [&](int64_t place, int64_t pieces) {
            uint32_t id = rules_.id_at(letters.at(place));
            for (int64_t i = 0; i < pieces; i++) writer.put(&id, 1, place, 0, rules_.k);
        });
    }

    const Rules& rules_;
    const uint8_t* data_;
    const int64_t* offsets_;
    const Options options_;
    const Shares shares_;
    std::vector<uint8_t> flags_;     // The flags of each row's bytes, or-ed, if rows are measured.
    std::vector<Part> parts_;
};

}  // namespace symbols
