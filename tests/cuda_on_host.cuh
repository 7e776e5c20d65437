// What every kernel needs of CUDA and of the generated header, on the host: a thread for each thread, barriers at which
// they meet, and mbarriers. What has to be counted as wrong is in `mistakes`; who waits in vain goes on, and is counted.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

struct Index {
    unsigned x;
};
inline thread_local Index threadIdx, blockIdx;
inline Index gridDim, blockDim;
inline std::atomic<int> mistakes;
constexpr std::chrono::seconds patience{20}, patience_with_the_wrong{1};

template <class Check>
void wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Check check)
{
    if (!changed.wait_for(lock, mistakes ? patience_with_the_wrong : patience, check)) {
        if (mistakes++ == 0) {
            std::fprintf(stderr, "thread %u of block %u waits in vain\n", threadIdx.x, blockIdx.x);
        }
    }
}

class ThreadBarrier {
public:
    void sync(unsigned count) { wait(arrive(count)); }

    // Returns the phase that comes to its end with the last arrival.
    unsigned arrive(unsigned count)
    {
        std::lock_guard<std::mutex> lock(mutex);
        const unsigned before = phase;
        if (++come == count) {
            come = 0;
            ++phase;
            changed.notify_all();
        }
        return before;
    }
    void wait(unsigned before)
    {
        std::unique_lock<std::mutex> lock(mutex);
        wait_until(changed, lock, [&] { return phase != before; });
    }

private:
    std::mutex mutex;
    std::condition_variable changed;
    unsigned come = 0, phase = 0;
};

// Returns when all threads have run it, each with its number.
template <class Body>
void run_threads(unsigned count, Body body)
{
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < count; ++number) {
        threads.emplace_back([=] { body(number); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

inline float __uint_as_float(unsigned bits)
{
    float number;
    std::memcpy(&number, &bits, 4);
    return number;
}

// What its words hold, each set of stand-ins says for itself.
typedef struct alignas(64) CUtensorMap_st {
    unsigned long long opaque[16];
} CUtensorMap;

namespace cupytma {

struct Mbarrier {
    unsigned count, pending, phase;
    long long bytes;
    unsigned waited = 0;  // phases whose end somebody has waited for
    bool is_told = false;  // by other blocks

    // Nobody tells a block anything that it does not wait for: it may have ended.
    bool is_awaited() const { return !is_told || (pending == count && phase == waited); }
};
inline std::map<const void*, Mbarrier> mbarriers;
inline std::mutex mbarriers_mutex;
inline std::condition_variable mbarriers_changed;

inline void mbarrier_init(unsigned long long* mbarrier, unsigned count)
{
    std::lock_guard<std::mutex> lock(mbarriers_mutex);
    mbarriers[mbarrier] = {count, count, 0, 0};
}
// To be asked for under the mutex. One that nobody has initialised yet is a mistake, which is no end of the process.
inline Mbarrier& host_mbarrier(const void* mbarrier)
{
    mistakes += mbarriers.count(mbarrier) == 0;
    return mbarriers[mbarrier];
}
inline void host_arrive(unsigned long long* mbarrier, unsigned arrivals, long long bytes)
{
    std::lock_guard<std::mutex> lock(mbarriers_mutex);
    Mbarrier& barrier = host_mbarrier(mbarrier);
    mistakes += barrier.pending < arrivals;
    barrier.pending -= arrivals;
    barrier.bytes += bytes;
    if (barrier.pending == 0 && barrier.bytes == 0) {
        barrier.pending = barrier.count;
        ++barrier.phase;
        mbarriers_changed.notify_all();
    }
}
inline void mbarrier_arrive_sink(unsigned long long* mbarrier) { host_arrive(mbarrier, 1, 0); }
inline void mbarrier_arrive_expect_tx_sink(unsigned long long* mbarrier, unsigned bytes)
{
    host_arrive(mbarrier, 1, bytes);
}
inline void mbarrier_wait_parity(unsigned long long* mbarrier, unsigned parity)
{
    std::unique_lock<std::mutex> lock(mbarriers_mutex);
    wait_until(mbarriers_changed, lock, [&] { return host_mbarrier(mbarrier).phase % 2 != parity; });
    Mbarrier& barrier = host_mbarrier(mbarrier);
    barrier.waited = barrier.phase;
}
inline void fence_mbarrier_init() {}
inline void fence_proxy_async_shared_cta() {}
inline void prefetch_tensormap(const void*) {}
inline bool elect_sync() { return threadIdx.x % 32 == 0; }

}  // namespace cupytma
