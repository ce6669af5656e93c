// Allocates memory in large pages, where the system has them, so that look-ups rarely miss the TLB.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#include <sys/mman.h>

// Allocates zeroed memory, in large pages if it takes at least half of one.
template <typename Element>
struct LargePages {
    using value_type = Element;
    static constexpr size_t PAGE_BYTES = size_t{2} << 20;

    LargePages() = default;
    template <typename Other>
    LargePages(const LargePages<Other>&) {}
    bool operator==(const LargePages&) const { return true; }
    bool operator!=(const LargePages&) const { return false; }

    Element* allocate(size_t count) {
        size_t size = mapped_bytes(count);
        void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
        if (size >= PAGE_BYTES) madvise(memory, size, MADV_HUGEPAGE);
#endif
        return static_cast<Element*>(memory);
    }
    void deallocate(Element* elements, size_t count) { munmap(elements, mapped_bytes(count)); }

    // Writes nothing, as the memory is zeroed: pages that are never written take no memory.
    void construct(Element*) {}
    template <typename... Values>
    void construct(Element* at, Values&&... values) { new (at) Element(values...); }

   private:
    static size_t mapped_bytes(size_t count) {
        size_t size = count * sizeof(Element);
        return size < PAGE_BYTES / 2 ? size : (size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    }
};

// A vector of numbers or plain structs that never shrinks, so that elements without a value of their own are 0.
template <typename Element>
using LargeVector = std::vector<Element, LargePages<Element>>;
