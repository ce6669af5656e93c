// Finds the ids of pretokens: in a cache of a thread, among the tokens that are whole pretokens, or by merges.
//
//     " the"  ──► cache: 16 bytes with the length, and up to three ids
//                  └─ not there ─► tokens: the same key, one id, immutable
//                                   └─ not there ─► merges ─┐
//                  ◄──── both fill the cache ◄──────────────┘
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "caches.hpp"
#include "merges.hpp"
#include "windows.hpp"

namespace text {

// The tokens that are whole pretokens, with their ids.
class WholeTokens {
   public:
    static constexpr int32_t NONE = -1;

    // Makes tables for so many tokens.
    WholeTokens(size_t num_short, size_t num_long, Seed seed)
        : seed_(seed), keys_(table_size(num_short)), ids_(keys_.size(), NONE), long_(table_size(num_long)),
          filter_mask_(4 * keys_.size() - 1), filter_(keys_.size() / 16), shift_(64 - __builtin_ctzll(keys_.size())),
          long_shift_(64 - __builtin_ctzll(long_.size())) {}

    // Adds a token that is not there yet.
    void add(const uint8_t* at, size_t size, int32_t id) {
        if (size > MAX_KEY) return add_long(at, size, id);
        uint8_t padded[16] = {};
        std::memcpy(padded, at, size);
        Key key = make_key(padded, size);
        uint64_t hash = hash_key(key, seed_);
        size_t bit = hash & filter_mask_;
        filter_[bit / 64] |= uint64_t{1} << (bit % 64);
        size_t slot = hash >> shift_;
        while (keys_[slot].high) slot = (slot + 1) & (keys_.size() - 1);
        keys_[slot] = key;
        ids_[slot] = id;
    }

    int32_t find(const Key& key, uint64_t hash) const {
        size_t bit = hash & filter_mask_;
        if (!(filter_[bit / 64] >> (bit % 64) & 1)) return NONE;
        for (size_t slot = hash >> shift_;; slot = (slot + 1) & (keys_.size() - 1)) {
            if (keys_[slot] == key) return ids_[slot];
            if (!keys_[slot].high) return NONE;
        }
    }

    int32_t find_long(const uint8_t* at, size_t size, uint64_t hash) const {
        if (size > longest_) return NONE;
        for (size_t slot = hash >> long_shift_;; slot = (slot + 1) & (long_.size() - 1)) {
            const Long& token = long_[slot];
            if (!token.size) return NONE;
            if (token.size == size && !std::memcmp(bytes_.data() + token.begin, at, size)) return token.id;
        }
    }

   private:
    struct Long {
        uint32_t begin = 0, size = 0;
        int32_t id = 0;
    };

    static size_t table_size(size_t count) {
        size_t size = 64;
        while (size < 2 * count) size *= 2;
        return size;
    }

    void add_long(const uint8_t* at, size_t size, int32_t id) {
        longest_ = std::max(longest_, size);
        size_t slot = hash_long(at, size, seed_) >> long_shift_;
        while (long_[slot].size) slot = (slot + 1) & (long_.size() - 1);
        long_[slot] = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(size), id};
        bytes_.insert(bytes_.end(), at, at + size);
    }

    const Seed seed_;
    LargeVector<Key> keys_;         // Their `high` is 0 where no token is: no length is 0.
    LargeVector<int32_t> ids_;
    std::vector<uint8_t> bytes_;    // Of the long tokens.
    std::vector<Long> long_;
    const size_t filter_mask_;
    std::vector<uint64_t> filter_;  // A bit for each hash that a short token has: most pretokens have none.
    const int shift_, long_shift_;
    size_t longest_ = 0;
};

// Tokens as Python gives them: the bytes of all, joined; token i has those from begins[i] to begins[i + 1].
struct GivenTokens {
    const uint8_t* bytes;
    const int64_t* begins;
    const int32_t* ids;
    size_t count;
    bool ignores_merges;    // A pretoken that is a token needs no merges.

    size_t size(size_t i) const { return static_cast<size_t>(begins[i + 1] - begins[i]); }
    size_t count_short() const {
        size_t number = 0;
        for (size_t i = 0; i < count; i++) number += size(i) <= MAX_KEY;
        return number;
    }
};

// The tables by which pretokens become ids.
struct Model {
    const MergeTables merges;
    const Seed seed;
    const WholeTokens tokens;
    LongCache long_pretokens;

    Model(MergeTables&& tables, Seed random, const GivenTokens& given)
        : merges(std::move(tables)), seed(random), tokens(find_whole(given)) {}

   private:
    // Finds the tokens that are whole pretokens: those to which their bytes merge, or all if merges are ignored.
    WholeTokens find_whole(const GivenTokens& given) const {
        WholeTokens found(given.count_short(), given.count - given.count_short(), seed);
        const MergeShort merge_short = choose_merge_short();
        LongMerger merger;
        std::vector<int32_t> ids;
        for (size_t i = 0; i < given.count; i++) {
            const uint8_t* at = given.bytes + given.begins[i];
            size_t size = given.size(i);
            if (given.ignores_merges) {
                found.add(at, size, given.ids[i]);
                continue;
            }
            if (ids.size() < size) ids.resize(size);
            int32_t* end = size <= MAX_SHORT ? merge_short(merges, at, size, ids.data())
                                             : merger.merge(merges, at, size, ids.data(), nullptr);
            if (end == ids.data() + 1) found.add(at, size, ids[0]);
        }
        return found;
    }
};

// Finds the ids of pretokens for one thread and one vocabulary.
class PieceEncoder {
   public:
    // Ids that are written behind those of a pretoken, and then overwritten.
    static constexpr size_t SLACK = 16;

    explicit PieceEncoder(Model& model) : model_(model) {}

    // Begins a text: forgets the pretokens of one that was abandoned. Merging a long pretoken asks whether the text is
    // still `needed`, and throws Abandoned if it is not.
    void begin(StillNeeded* needed) {
        num_pending_ = num_long_ = num_later_ = 0;
        needed_ = needed;
    }

    // Takes the next pretoken, whose first 16 bytes are readable, and fetches its bucket to the processor's cache.
    // The attribute is for GCC 13, which would call it.
    __attribute__((always_inline)) void add(const uint8_t* at, size_t size) {
        Pending& next = pending_[num_pending_++];
        next.at = at;
        if (__builtin_expect(size > MAX_KEY, 0)) {
            next.key = {size, 0};
            next.hash = hash_long(at, size, model_.seed);
            long_[num_long_++] = static_cast<uint8_t>(num_pending_ - 1);
            model_.long_pretokens.fetch_entry(next.hash);
            return;
        }
        next.key = make_key(at, size);
        next.hash = hash_key(next.key, model_.seed);
        __builtin_prefetch(short_.first_bucket(next.hash));
        __builtin_prefetch(short_.second_bucket(next.hash));
    }

    bool is_full() const { return num_pending_ >= MAX_PENDING - WINDOW; }

    // Writes the ids of the pretokens since the last call; returns the place behind them.
    // There is memory for an id for each byte, and for SLACK more.
    int32_t* write(int32_t* out) {
        for (size_t i = 0; i < num_long_; i++) model_.long_pretokens.fetch_ids(pending_[long_[i]].hash);
        for (const Pending *next = pending_, *end = pending_ + num_pending_; next < end; next++) {
            const Key key = next->key;
            if (__builtin_expect(!key.high, 0)) {
                out = encode_long(next->at, key.low, next->hash, out);
                continue;
            }
            const ShortCache::Bucket* bucket = short_.first_bucket(next->hash);
            size_t is_first = without_branch(bucket->entries[0].key == key);
            size_t is_second = without_branch(bucket->entries[1].key == key);
            if (__builtin_expect(!(is_first | is_second), 0)) {
                out = encode_elsewhere(*next, out);
                continue;
            }
            const ShortCache::Entry& entry = bucket->entries[is_second];
            std::memcpy(out, entry.ids, sizeof(entry.ids));
            if (__builtin_expect(entry.count > ShortCache::MAX_INLINE, 0)) {
                const int32_t* ids = short_.further_ids(entry);
                __builtin_prefetch(ids);
                __builtin_prefetch(ids + MAX_KEY - ShortCache::MAX_INLINE - 1);
                later_[num_later_++] = {ids, out + ShortCache::MAX_INLINE, entry.count - ShortCache::MAX_INLINE};
            }
            out += entry.count;
        }
        copy_later_ids();
        num_pending_ = num_long_ = 0;
        return out;
    }

   private:
    // A pretoken whose ids are not written yet. The key of a long one is its length, and 0.
    struct Pending {
        Key key;
        uint64_t hash;
        const uint8_t* at;
    };
    // Ids behind the first three of a pretoken, which are copied when they are in the processor's cache.
    struct LaterIds {
        const int32_t* from;
        int32_t* to;
        size_t count;
    };
    static constexpr size_t MAX_PENDING = 2 * WINDOW;
    static constexpr size_t FURTHER_BYTES = sizeof(int32_t) * (MAX_KEY - ShortCache::MAX_INLINE);

    void copy_later_ids() {
        for (size_t i = 0; i < num_later_; i++) {
            const LaterIds& ids = later_[i];
            for (size_t each = 0; each < ids.count; each++) ids.to[each] = ids.from[each];
        }
        num_later_ = 0;
    }

    void copy_further(const ShortCache::Entry& entry, int32_t* out) {
        std::memcpy(out + ShortCache::MAX_INLINE, short_.further_ids(entry), FURTHER_BYTES);
    }

    __attribute__((noinline)) int32_t* encode_elsewhere(const Pending& pending, int32_t* out) {
        if (const ShortCache::Entry* entry = short_.find_in_second(pending.key, pending.hash)) {
            std::memcpy(out, entry->ids, sizeof(entry->ids));
            if (entry->count > ShortCache::MAX_INLINE) copy_further(*entry, out);
            return out + entry->count;
        }
        copy_later_ids();   // The new entry may replace one of those.
        ShortCache::Entry& entry = short_.choose_entry(pending.hash);
        int32_t id = model_.tokens.find(pending.key, pending.hash);
        int32_t* end = out + 1;
        if (id != WholeTokens::NONE) *out = id;
        else end = merge(pending.at, pending.key.high >> 56, out);
        short_.set(entry, pending.key, out, static_cast<size_t>(end - out));
        return end;
    }

    __attribute__((noinline)) int32_t* encode_long(const uint8_t* at, size_t size, uint64_t hash, int32_t* out) {
        if (size > LongCache::MAX_BYTES) return encode_unknown(at, size, hash, out);
        if (int32_t* end = model_.long_pretokens.find(at, size, hash, out)) return end;
        int32_t* end = encode_unknown(at, size, hash, out);
        model_.long_pretokens.add(at, size, hash, out, static_cast<size_t>(end - out));
        return end;
    }

    int32_t* encode_unknown(const uint8_t* at, size_t size, uint64_t hash, int32_t* out) {
        int32_t id = model_.tokens.find_long(at, size, hash);
        if (id == WholeTokens::NONE) return merge(at, size, out);
        *out = id;
        return out + 1;
    }

    int32_t* merge(const uint8_t* at, size_t size, int32_t* out) {
        if (size <= MAX_SHORT) return merge_short_(model_.merges, at, size, out);
        return merger_.merge(model_.merges, at, size, out, needed_);
    }

    Model& model_;
    const MergeShort merge_short_ = choose_merge_short();
    ShortCache short_;
    LongMerger merger_;
    StillNeeded* needed_ = nullptr;
    size_t num_pending_ = 0, num_long_ = 0, num_later_ = 0;
    Pending pending_[MAX_PENDING];
    uint8_t long_[MAX_PENDING];      // The places of long pretokens among the pending ones.
    LaterIds later_[MAX_PENDING];
};

}  // namespace text
