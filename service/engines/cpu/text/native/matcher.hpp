// Finds strings in a text: leftmost first, the longest of those that begin at one place.
//
// Special tokens, motifs and the literal of a pretokenizer are such strings. memchr searches each of their first bytes
// once through a text, and a trie then finds the string.
//
//     strings  <|a|> <|ab|>      text  x < y <|ab|>
//     searched <                         ^   ^         the trie ends at once, or in a string
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace text {

struct Match {
    const uint8_t *begin, *end;
    int32_t string;     // Its number; NOTHING: there is none, and begin is the text's end.
    static constexpr int32_t NOTHING = -1;
};

class Matcher {
   public:
    void add(const std::string& content, int32_t number) {
        if (content.empty()) return;
        auto first = static_cast<uint8_t>(content[0]);
        if (!is_first_[first]) first_bytes_.push_back(first);
        is_first_[first] = true;
        uint32_t node = 0;
        for (char c : content) {
            auto [child, is_new] = children_.try_emplace(key_of(node, static_cast<uint8_t>(c)), strings_.size());
            if (is_new) strings_.push_back(Match::NOTHING);
            node = child->second;
        }
        if (strings_[node] == Match::NOTHING) strings_[node] = number;
    }

    bool is_empty() const { return first_bytes_.empty(); }

    static constexpr size_t MAX_SEARCHED = 4;   // First bytes; if there are more, each byte of the text is looked up.

    // Reads one text from its begin to its end.
    class Search {
       public:
        Search(const Matcher& matcher, const uint8_t* end) : matcher_(matcher), end_(end) {
            for (size_t i = 0; i < MAX_SEARCHED; i++) next_[i] = nullptr;
        }

        // Finds the first match from `at` on, which never goes back.
        Match find(const uint8_t* at) {
            for (; (at = find_candidate(at)) < end_; at++) {
                Match match = matcher_.longest_at(at, end_);
                if (match.string != Match::NOTHING) return match;
            }
            return {end_, end_, Match::NOTHING};
        }

       private:
        const uint8_t* find_candidate(const uint8_t* at) {
            const auto& bytes = matcher_.first_bytes_;
            if (bytes.size() > MAX_SEARCHED) {
                while (at < end_ && !matcher_.is_first_[*at]) at++;
                return at;
            }
            const uint8_t* first = end_;
            for (size_t i = 0; i < bytes.size(); i++) {
                if (!next_[i] || next_[i] < at) {
                    auto* found = std::memchr(at, bytes[i], static_cast<size_t>(end_ - at));
                    next_[i] = found ? static_cast<const uint8_t*>(found) : end_;
                }
                first = std::min(first, next_[i]);
            }
            return first;
        }

        const Matcher& matcher_;
        const uint8_t* const end_;
        const uint8_t* next_[MAX_SEARCHED];   // Where each first byte is next.
    };

   private:
    static uint64_t key_of(uint32_t node, uint8_t byte) { return static_cast<uint64_t>(node) << 8 | byte; }

    Match longest_at(const uint8_t* at, const uint8_t* end) const {
        Match match{at, at, Match::NOTHING};
        uint32_t node = 0;
        for (const uint8_t* next = at; next < end;) {
            auto child = children_.find(key_of(node, *next++));
            if (child == children_.end()) break;
            node = child->second;
            if (strings_[node] != Match::NOTHING) match = {at, next, strings_[node]};
        }
        return match;
    }

    std::vector<uint8_t> first_bytes_;
    bool is_first_[256]{};
    std::unordered_map<uint64_t, uint32_t> children_;
    std::vector<int32_t> strings_{Match::NOTHING};   // That ends at each node.
};

}  // namespace text
