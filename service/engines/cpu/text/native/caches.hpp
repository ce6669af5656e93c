// Remembers pretokens with their ids: short ones for one thread, long ones for all threads of a vocabulary.
//
//     " the"   ──► a key: 16 bytes with the length ──► ShortCache: a bucket of two entries, or the one beside it
//     " antidisestablishmentarianism" ──► its hash ──► LongCache: one of two entries of a shard
//
// Every look-up compares all bytes of a pretoken. Hashes have a random seed, so that nobody can choose texts whose
// pretokens share a place.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "../../native/large_pages.hpp"

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

}  // namespace text
