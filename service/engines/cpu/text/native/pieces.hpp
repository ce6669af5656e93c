// Finds the ids of pretokens: in a cache of a thread, among the tokens that are whole pretokens, or by merges.
//
//     " the"  ──► cache: 16 bytes with the length, and up to three ids
//                  └─ not there ─► tokens: the same key, one id, immutable
//                                   └─ not there ─► merges ─┐
//                  ◄──── both fill the cache ◄──────────────┘
//
// Every look-up compares all bytes of a pretoken. Hashes have a random seed, so that nobody can choose texts whose
// pretokens share a place.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "../../native/large_pages.hpp"
#include "merges.hpp"
#include "windows.hpp"

namespace text {

constexpr size_t MAX_KEY = 15;         // Bytes of a pretoken that fit in a key.

// A pretoken's bytes, and its length in the last one.
struct Key {
    uint64_t low, high;
    bool operator==(const Key& other) const { return !((low ^ other.low) | (high ^ other.high)); }
};

// Makes the key of up to 15 bytes; 16 are readable.
inline Key make_key(const uint8_t* at, size_t size) {
    static constexpr uint64_t ALL = ~uint64_t{0};
    static constexpr uint64_t LOW[16] = {0,
                                         ALL >> 56, ALL >> 48, ALL >> 40, ALL >> 32, ALL >> 24, ALL >> 16, ALL >> 8,
                                         ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL};
    static constexpr uint64_t HIGH[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0,
                                          ALL >> 56, ALL >> 48, ALL >> 40, ALL >> 32, ALL >> 24, ALL >> 16, ALL >> 8};
    Key key;
    std::memcpy(&key.low, at, 8);
    std::memcpy(&key.high, at + 8, 8);
    key.low &= LOW[size];
    key.high = (key.high & HIGH[size]) | static_cast<uint64_t>(size) << 56;
    return key;
}

struct Seed {
    uint64_t low, high;
};

inline uint64_t multiply_and_fold(uint64_t left, uint64_t right) {
    auto product = static_cast<unsigned __int128>(left) * right;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_key(const Key& key, const Seed& seed) {
    return multiply_and_fold(key.low ^ seed.low, key.high ^ seed.high);
}

inline uint64_t hash_bytes(const uint8_t* at, size_t size, const Seed& seed) {
    uint64_t hash = seed.low ^ size;
    for (; size > 16; at += 16, size -= 16) {
        Key words;
        std::memcpy(&words, at, 16);
        hash = multiply_and_fold(words.low ^ hash, words.high ^ seed.high);
    }
    Key rest{0, 0};
    std::memcpy(&rest, at, size);
    return multiply_and_fold(rest.low ^ hash, rest.high ^ seed.high);
}

// Hashes a pretoken of more than 15 bytes by at most 256 of its bytes.
inline uint64_t hash_long(const uint8_t* at, size_t size, const Seed& seed) {
    return hash_bytes(at, std::min<size_t>(size, 256), seed);
}

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

// A bounded cache of pretokens of more than 15 bytes with their ids, for all threads of a vocabulary.
//
//     entry    hash of 64 bits │ begin, size and count      in one of two places
//                                  └─► memory    bytes of the pretoken, its ids │ those of the next │ ...
//
// Readers write nothing, or they would take the shard out of each other's processor caches. A shard has a version,
// which is odd while a thread writes; a reader whose version has changed meanwhile has found nothing. A writer that
// finds another one there does not add its pretoken. A shard that is full is emptied.
class LongCache {
   public:
    static constexpr size_t MAX_BYTES = 1024;   // Of a pretoken.

    // Fetches the place of a pretoken to the processor's cache.
    void fetch_entry(uint64_t hash) const {
        __builtin_prefetch(shards_[shard_of(hash)].entries.data() + place_of(hash));
    }

    // Fetches the bytes and ids of a pretoken to the processor's cache.
    __attribute__((noinline)) void fetch_ids(uint64_t hash) const {
        const Shard& shard = shards_[shard_of(hash)];
        for (size_t way = 0; way < 2; way++) {
            const Entry& entry = shard.entries[place_of(hash) ^ way];
            if (load(entry.hash) != hash) continue;
            const uint64_t* record = shard.memory.data() + Place(load(entry.place)).begin;
            __builtin_prefetch(record);
            __builtin_prefetch(record + 8);
        }
    }

    // Copies the ids of a pretoken, and up to one more; returns the place behind them. nullptr: it is not there.
    int32_t* find(const uint8_t* at, size_t size, uint64_t hash, int32_t* out) const {
        const Shard& shard = shards_[shard_of(hash)];
        const uint32_t version = shard.version.load(std::memory_order_acquire);
        for (size_t way = 0; way < 2; way++) {
            const Entry& entry = shard.entries[place_of(hash) ^ way];
            if (load(entry.hash) != hash) continue;
            Place place(load(entry.place));
            const uint64_t* record = shard.memory.data() + place.begin;
            if (place.size != size || !has_bytes(record, at, size)) continue;
            record += words_for(size);
            for (size_t i = 0; i < place.count; i += 2, record++) {
                uint64_t pair = load(*record);
                std::memcpy(out + i, &pair, sizeof(pair));
            }
            bool is_whole = version % 2 == 0 && shard.version.load(std::memory_order_relaxed) == version;
            return is_whole ? out + place.count : nullptr;
        }
        return nullptr;
    }

    // Adds a pretoken with its ids, of which there are at most as many as bytes.
    void add(const uint8_t* at, size_t size, uint64_t hash, const int32_t* ids, size_t count) {
        Shard& shard = shards_[shard_of(hash)];
        uint32_t version = shard.version.load(std::memory_order_relaxed);
        if (version % 2 || !shard.version.compare_exchange_strong(version, version + 1)) return;
        size_t num_words = words_for(size) + words_for(count * sizeof(int32_t));
        if (shard.num_words + num_words > SHARD_WORDS) shard.clear();
        uint64_t* record = shard.memory.data() + shard.num_words;
        write_bytes(record, at, size);
        write_bytes(record + words_for(size), reinterpret_cast<const uint8_t*>(ids), count * sizeof(int32_t));
        Entry* entry = &shard.entries[place_of(hash)];
        if (entry->place && !shard.entries[place_of(hash) ^ 1].place) entry = &shard.entries[place_of(hash) ^ 1];
        store(entry->hash, hash);
        store(entry->place, Place(shard.num_words, size, count).packed());
        shard.num_words += num_words;
        shard.version.store(version + 2, std::memory_order_release);
    }

   private:
    static constexpr size_t SHARD_BITS = 6, ENTRY_BITS = 11;
    static constexpr size_t SHARD_WORDS = 1 << 15;   // 256 kB: 16 MB with all shards.

    // Where a pretoken is in the memory of its shard. As one word, its parts always belong together.
    struct Place {
        uint32_t begin;
        uint16_t size, count;   // Bytes of the pretoken, and ids.

        explicit Place(uint64_t packed)
            : begin(static_cast<uint32_t>(packed >> 32)), size(static_cast<uint16_t>(packed >> 16)),
              count(static_cast<uint16_t>(packed)) {}
        Place(size_t at, size_t num_bytes, size_t num_ids)
            : begin(static_cast<uint32_t>(at)), size(static_cast<uint16_t>(num_bytes)),
              count(static_cast<uint16_t>(num_ids)) {}
        uint64_t packed() const {
            return static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(size) << 16 | count;
        }
    };

    struct Entry {
        uint64_t hash, place;   // The place is 0 where no pretoken is: no size is 0.
    };

    // Pages that were never written take no memory. One thread writes at a time, and others read the words meanwhile.
    struct Shard {
        alignas(64) std::atomic<uint32_t> version{0};
        LargeVector<Entry> entries = LargeVector<Entry>(size_t{1} << ENTRY_BITS);
        LargeVector<uint64_t> memory = LargeVector<uint64_t>(SHARD_WORDS);
        size_t num_words = 0;

        void clear() {
            for (Entry& entry : entries) {
                store(entry.hash, 0);
                store(entry.place, 0);
            }
            num_words = 0;
        }
    };

    // Loads stay before a later load of the version, and stores behind an earlier store of it.
    static uint64_t load(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
    static void store(uint64_t& word, uint64_t value) { __atomic_store_n(&word, value, __ATOMIC_RELEASE); }

    static constexpr size_t words_for(size_t num_bytes) { return (num_bytes + 7) / 8; }

    static bool has_bytes(const uint64_t* record, const uint8_t* at, size_t size) {
        for (; size >= 8; at += 8, size -= 8, record++) {
            uint64_t word;
            std::memcpy(&word, at, 8);
            if (load(*record) != word) return false;
        }
        return load_part(at, size) == (size ? load(*record) : 0);
    }

    static void write_bytes(uint64_t* record, const uint8_t* at, size_t size) {
        for (; size >= 8; at += 8, size -= 8, record++) {
            uint64_t word;
            std::memcpy(&word, at, 8);
            store(*record, word);
        }
        if (size) store(*record, load_part(at, size));
    }

    // Returns up to 7 bytes as a word.
    static uint64_t load_part(const uint8_t* at, size_t size) {
        uint64_t word = 0;
        std::memcpy(&word, at, size);
        return word;
    }

    static size_t shard_of(uint64_t hash) { return hash >> (64 - SHARD_BITS); }
    static size_t place_of(uint64_t hash) { return hash & ((size_t{1} << ENTRY_BITS) - 1); }

    Shard shards_[size_t{1} << SHARD_BITS];
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

// A bounded cache of pretokens with their ids, for one thread.
//
// A bucket has two pretokens in 64 bytes, both of which are compared at once. A pretoken is in the bucket that its hash
// chooses, or in the one beside it; where both are full, a new one replaces one in the first of them.
class ShortCache {
   public:
    static constexpr size_t BITS = 16;          // Of the number of buckets.
    static constexpr size_t MAX_INLINE = 3;     // Ids in a bucket; further ones are apart.

    ShortCache() : buckets_(size_t{1} << BITS), further_((size_t{2} << BITS) + 1) {}

    struct alignas(32) Entry {
        Key key;
        int32_t ids[MAX_INLINE];
        uint32_t count : 8;
        uint32_t further : 24;      // The place of its further ids, which it keeps for a later pretoken; 0: none yet.
    };

    struct alignas(64) Bucket {
        Entry entries[2];
    };

    // Returns the entry of a pretoken in its second bucket, or nullptr.
    const Entry* find_in_second(const Key& key, uint64_t hash) const {
        for (const Entry& entry : second_bucket(hash)->entries) {
            if (entry.key == key) return &entry;
        }
        return nullptr;
    }

    // Returns the entry for a pretoken that is in neither bucket: a free one, or one of another pretoken.
    Entry& choose_entry(uint64_t hash) {
        size_t first = hash >> (64 - BITS);
        for (size_t bucket : {first, first ^ 1}) {
            for (Entry& entry : buckets_[bucket].entries) {
                if (!entry.key.high) return entry;
            }
        }
        return buckets_[first].entries[hash >> 8 & 1];
    }

    // The first bucket of a pretoken, in which most are.
    const Bucket* first_bucket(uint64_t hash) const { return buckets_.data() + (hash >> (64 - BITS)); }
    const Bucket* second_bucket(uint64_t hash) const { return buckets_.data() + ((hash >> (64 - BITS)) ^ 1); }

    // The ids of an entry behind the first three.
    const int32_t* further_ids(const Entry& entry) const { return further_[entry.further].ids; }

    // Sets the ids of an entry. There are MAX_KEY readable ones. Few pretokens have further ids, which are side by side,
    // so that they take little memory and few pages.
    void set(Entry& entry, const Key& key, const int32_t* ids, size_t count) {
        entry.key = key;
        entry.count = static_cast<uint8_t>(count);
        std::memcpy(entry.ids, ids, sizeof(entry.ids));
        if (count <= MAX_INLINE) return;
        if (!entry.further) entry.further = ++num_further_ & MAX_FURTHER;
        std::memcpy(further_[entry.further].ids, ids + MAX_INLINE, sizeof(Further));
    }

   private:
    struct Further {
        int32_t ids[MAX_KEY - MAX_INLINE];
    };
    static constexpr uint32_t MAX_FURTHER = (1 << 24) - 1;
    static_assert((size_t{2} << BITS) < MAX_FURTHER);
    LargeVector<Bucket> buckets_;
    LargeVector<Further> further_;      // The first one is not used.
    uint32_t num_further_ = 0;
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
