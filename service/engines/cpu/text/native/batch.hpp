// Encodes the rows of a batch by several threads; long rows are cut into parts.
//
// A row is cut between an ASCII letter and a blank. Every rule ends a pretoken there, and no rule depends on the text
// before a pretoken.
//
//     part 0   |The words of a long|        part 1   | row, whose ids are those of both parts|
#pragma once

#include <mutex>

#include "../../native/share_tasks.hpp"
#include "rows.hpp"

namespace text {

constexpr int64_t THREAD_BYTES = 1 << 13;       // They take about 20 us, as long as waking a thread.
constexpr size_t THREAD_IDS = size_t{1} << 16;  // The same for ids that are copied to fresh memory.
constexpr size_t KEPT_IDS = size_t{1} << 20;    // Of a thread's memory for ids between two batches.

// A vocabulary's tables, and the encoders of the threads that used it.
class Vocabulary {
   public:
    Vocabulary(std::unique_ptr<Model> model, Rules&& rules, const Pretokenizer& pretokenizer, bool cuts)
        : may_cut(cuts), model_(std::move(model)), rules_(std::move(rules)), pretokenizer_(pretokenizer) {}

    // An encoder, and memory for the ids of a task.
    struct Worker {
        TextEncoder encoder;
        std::vector<int32_t> ids;
    };

    struct GiveBack {
        Vocabulary* owner;
        void operator()(Worker* worker) const { owner->give_back(std::unique_ptr<Worker>(worker)); }
    };
    using Borrowed = std::unique_ptr<Worker, GiveBack>;

    // Lends a worker that no other thread has.
    Borrowed borrow() {
        std::lock_guard<std::mutex> lock(mutex_);
        if (idle_.empty()) return {new Worker{{rules_, pretokenizer_, *model_}, {}}, {this}};
        Worker* worker = idle_.back().release();
        idle_.pop_back();
        return {worker, {this}};
    }

    const bool may_cut;     // No special token matches a letter and a blank, and there are no motifs.

   private:
    void give_back(std::unique_ptr<Worker> worker) {
        if (worker->ids.size() > KEPT_IDS) std::vector<int32_t>().swap(worker->ids);
        std::lock_guard<std::mutex> lock(mutex_);
        idle_.push_back(std::move(worker));
    }

    const std::unique_ptr<Model> model_;
    const Rules rules_;
    const Pretokenizer pretokenizer_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Worker>> idle_;
};

// Rows, or a part of one row, that a thread encodes at once.
struct Task {
    int64_t first_row, end_row;
    int64_t begin, end;             // Bytes of the batch.
    std::vector<int32_t> ids{};
    bool is_part = false;
    size_t first_id = 0;            // Of the batch.
};

class BatchEncoder {
   public:
    // `counts` and `reasons` have an element for each row.
    BatchEncoder(Vocabulary& vocabulary, const uint8_t* data, const int64_t* offsets, int64_t num_rows, bool is_valid,
                 bool is_composed, bool is_plain, int num_threads, int64_t task_bytes, int64_t* counts,
                 uint8_t* reasons)
        : vocabulary_(vocabulary), data_(data), offsets_(offsets), num_rows_(num_rows), is_valid_(is_valid),
          is_composed_(is_composed), is_plain_(is_plain),
          shares_(make_shares(offsets[num_rows] - offsets[0], num_threads, THREAD_BYTES, task_bytes)),
          counts_(counts), reasons_(reasons) {
        std::fill_n(counts_, num_rows_, 0);
        std::fill_n(reasons_, num_rows_, NONE);
        make_tasks();
    }

    // Throws Abandoned if the ids are not `needed` any more.
    void encode(StillNeeded& needed) {
        share_tasks(
            tasks_.size(), shares_.num_threads, [&] { return vocabulary_.borrow(); },
            [&](Vocabulary::Borrowed& worker, size_t task) { encode_task(*worker, tasks_[task], needed); }, needed);
        drop_left_rows();
        for (Task& task : tasks_) {
            task.first_id = num_ids_;
            num_ids_ += task.ids.size();
        }
    }

    size_t num_ids() const { return num_ids_; }

    int64_t num_left() const { return num_rows_ - std::count(reasons_, reasons_ + num_rows_, NONE); }

    void write(int32_t* out) const {
        auto num_threads = std::min(shares_.num_threads, static_cast<int>(num_ids_ / THREAD_IDS));
        share_tasks(tasks_.size(), num_threads, [] { return 0; }, [&](int, size_t task) {
            std::copy(tasks_[task].ids.begin(), tasks_[task].ids.end(), out + tasks_[task].first_id);
        });
    }

   private:
    void make_tasks() {
        for (int64_t row = 0; row < num_rows_;) {
            int64_t begin = offsets_[row], next = row + 1;
            while (next < num_rows_ && offsets_[next + 1] - begin <= shares_.task_bytes) next++;
            if (next == row + 1 && offsets_[next] - begin > 2 * shares_.task_bytes && vocabulary_.may_cut) cut_row(row);
            else tasks_.push_back({row, next, begin, offsets_[next]});
            row = next;
        }
    }

    // Makes a task of each part of a row.
    void cut_row(int64_t row) {
        int64_t begin = offsets_[row], end = offsets_[row + 1];
        for (int64_t cut; (cut = find_cut(begin + shares_.task_bytes, end)) < end; begin = cut)
            tasks_.push_back({row, row + 1, begin, cut, {}, true});
        tasks_.push_back({row, row + 1, begin, end, {}, true});
    }

    // Returns the first place from one on between a letter and a blank; `end` if there is none.
    int64_t find_cut(int64_t place, int64_t end) const {
        for (; place < end; place++) {
            if (data_[place] == ' ' && static_cast<uint8_t>((data_[place - 1] | 0x20) - 'a') < 26) return place;
        }
        return end;
    }

    void encode_task(Vocabulary::Worker& worker, Task& task, StillNeeded& needed) {
        auto room = static_cast<size_t>(task.end - task.begin) + PieceEncoder::SLACK;
        if (worker.ids.size() < room) worker.ids.resize(room);
        int32_t* out = worker.ids.data();
        for (int64_t row = task.first_row; row < task.end_row; row++) {
            TextEncoder::Text text{data_ + (task.is_part ? task.begin : offsets_[row]),
                                   data_ + (task.is_part ? task.end : offsets_[row + 1]), data_ + offsets_[num_rows_],
                                   is_valid_, is_composed_};
            int32_t* begin = out;
            Reason reason = worker.encoder.encode(text, is_plain_, out, needed);
            if (reason) out = begin;
            note(row, task.is_part, out - begin, reason);
        }
        task.ids.assign(worker.ids.data(), out);
    }

    void note(int64_t row, bool is_part, int64_t count, Reason reason) {
        if (!is_part) {
            counts_[row] = count;
            reasons_[row] = reason;
            return;
        }
        std::lock_guard<std::mutex> lock(mutex_);
        counts_[row] += count;
        if (reason) reasons_[row] = reason;
    }

    // Drops the ids of rows of which any part is left to another encoder.
    void drop_left_rows() {
        for (Task& task : tasks_) {
            if (!task.is_part || !reasons_[task.first_row]) continue;
            task.ids.clear();
            counts_[task.first_row] = 0;
        }
    }

    Vocabulary& vocabulary_;
    const uint8_t* const data_;
    const int64_t* const offsets_;
    const int64_t num_rows_;
    const bool is_valid_, is_composed_, is_plain_;
    const Shares shares_;
    int64_t* const counts_;
    uint8_t* const reasons_;
    std::vector<Task> tasks_;
    size_t num_ids_ = 0;
    std::mutex mutex_;
};

}  // namespace text
