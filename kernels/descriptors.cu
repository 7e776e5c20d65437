// Tensor maps made and changed on the device, one warp for each.
//
// What the maps say comes in columns: of one entry for all of them, or of one row for each in device memory. Parameters
// that break a rule make no map. The slot's status says which rule, the host finds the parameters in `failures`, and the
// slot holds a map of the buffer's own refuge, so that copies through it touch nobody's memory.
//
// rules.cuh holds the parameters and the rules, made from the tables that the host has.
#include <cupytma.cuh>
#include <rules.cuh>

namespace maps = cupytma::tensormap;

constexpr unsigned warp_threads = 32;
constexpr unsigned warps = 4;
constexpr int max_rank = 5;
constexpr maps::Scope scope = maps::Scope::SCOPE;

// One operand of all maps. Where data is null, each has the constant.
struct Column {
    const unsigned char* data;
    long long row_bytes;
    long long entry_bytes;
    long long constant[max_rank];
    int item_bytes;
    int is_signed;

    __device__ long long operator()(unsigned long long row, int entry = 0) const
    {
        if (data == nullptr) {
            return constant[entry];
        }
        const unsigned char* at = data + static_cast<long long>(row) * row_bytes + entry * entry_bytes;
        if (item_bytes == 8) {
            return *reinterpret_cast<const long long*>(at);
        }
        return is_signed ? static_cast<long long>(*reinterpret_cast<const int*>(at))
                         : static_cast<long long>(*reinterpret_cast<const unsigned*>(at));
    }
};

struct Failure {
    unsigned long long slot;
    unsigned long long rule;
    Operands operands;
};

struct Failures {
    unsigned long long count;
    Failure first[MOST_FAILURES];
};

struct Request {
    CUtensorMap* slots;
    unsigned* status;
    Failures* failures;
    unsigned long long refuge;  // 128 bytes that copies through unusable slots may touch
    unsigned long long first;
    unsigned long long count;
    Column global_address, rank, data_type, interleave, swizzle, l2_promotion, oob_fill;
    Column global_dim, global_strides, box_dim, element_strides;
};

// What is beyond the rank is what no rule objects to.
__device__ Operands operands_of(const Request& request, unsigned long long row)
{
    Operands o;
    o.global_address = request.global_address(row);
    o.rank = request.rank(row);
    o.data_type = request.data_type(row);
    o.interleave = request.interleave(row);
    o.swizzle = request.swizzle(row);
    o.l2_promotion = request.l2_promotion(row);
    o.oob_fill = request.oob_fill(row);
#pragma unroll
    for (int i = 0; i < max_rank; ++i) {
        const bool is_there = i < o.rank;
        o.global_dim[i] = is_there ? request.global_dim(row, i) : 1;
        o.box_dim[i] = is_there ? request.box_dim(row, i) : 1;
        o.element_strides[i] = is_there ? request.element_strides(row, i) : 1;
        if (i > 0) {
            o.global_strides[i - 1] = is_there ? request.global_strides(row, i - 1) : 0;
        }
    }
    return o;
}

// The same map over the refuge: one element, or as many as the packed types have at least.
__device__ Operands over_refuge(Operands o, unsigned long long refuge)
{
    o.global_address = static_cast<long long>(refuge);
#pragma unroll
    for (int i = 0; i < max_rank; ++i) {
        o.global_dim[i] = i == 0 && ELEMENT_BITS[o.data_type] % 8 != 0 ? 128 : 1;
        if (i > 0) {
            o.global_strides[i - 1] = i < o.rank ? 32 : 0;
        }
    }
    return o;
}

__device__ void note_failure(const Request& request, unsigned long long row, unsigned rule, const Operands& o)
{
    const unsigned long long place = atomicAdd(&request.failures->count, 1ull);
    if (place < MOST_FAILURES) {
        request.failures->first[place] = Failure{request.first + row, rule, o};
    }
}

__device__ void rebind_any(maps::Slot& slot, const Operands& o)
{
    unsigned extents[max_rank];
    unsigned long long strides[max_rank - 1];
#pragma unroll
    for (int i = 0; i < max_rank; ++i) {
        extents[i] = static_cast<unsigned>(o.global_dim[i]);  // the instruction takes 2^32 as 0
        if (i > 0) {
            strides[i - 1] = static_cast<unsigned long long>(o.global_strides[i - 1]);
        }
    }
    const unsigned long long address = static_cast<unsigned long long>(o.global_address);
    switch (o.rank) {
    case 1: maps::rebind<1>(slot, address, extents, strides); break;
    case 2: maps::rebind<2>(slot, address, extents, strides); break;
    case 3: maps::rebind<3>(slot, address, extents, strides); break;
    case 4: maps::rebind<4>(slot, address, extents, strides); break;
    default: maps::rebind<5>(slot, address, extents, strides); break;
    }
}

__device__ void encode_any(maps::Slot& slot, const Operands& o)
{
    maps::Parameters p;
    p.address = static_cast<unsigned long long>(o.global_address);
    p.rank = static_cast<unsigned>(o.rank);
    p.element_type = static_cast<unsigned>(ELEMENT_TYPE[o.data_type]);
    p.interleave_layout = static_cast<unsigned>(o.interleave);
    p.swizzle_mode = static_cast<unsigned>(SWIZZLE_MODE[o.swizzle]);
    p.swizzle_atomicity = static_cast<unsigned>(SWIZZLE_ATOMICITY[o.swizzle]);
    p.fill_mode = static_cast<unsigned>(o.oob_fill);
#pragma unroll
    for (int i = 0; i < max_rank; ++i) {
        p.extents[i] = static_cast<unsigned>(o.global_dim[i]);
        p.box[i] = static_cast<unsigned>(o.box_dim[i]);
        p.element_strides[i] = static_cast<unsigned>(o.element_strides[i]);
        if (i > 0) {
            p.strides[i - 1] = static_cast<unsigned long long>(o.global_strides[i - 1]);
        }
    }
    maps::encode(slot, p);
}

// The rows of a warp, in turn: each with a slot of shared memory that is free.
template <typename Build>
__device__ void for_each_row(const Request& request, Build build)
{
    __shared__ maps::Slot slots[warps];
    const unsigned warp = threadIdx.x / warp_threads, lane = threadIdx.x % warp_threads;
    const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * warps;
#pragma unroll 1
    for (unsigned long long row = static_cast<unsigned long long>(blockIdx.x) * warps + warp; row < request.count;
         row += step) {
        const Operands o = operands_of(request, row);
        const unsigned rule = build(slots[warp], request.slots + row, o);
        if (lane == 0) {
            request.status[row] = rule;
            if (rule != 0) {
                note_failure(request, row, rule, o);
            }
        }
    }
}

struct Templates {
    CUtensorMap by_promotion[4];
};

// Every parameter is given; the L2 promotion, which no instruction changes, comes from the template.
extern "C" __global__ void __launch_bounds__(warps * warp_threads) encode_maps(
    const __grid_constant__ Request request, const __grid_constant__ Templates templates)
{
    for_each_row(request, [&](maps::Slot& slot, CUtensorMap* tensor_map, const Operands& given) {
        const unsigned rule = broken_rule(given);
        Operands o = given;
        bool is_encoded = rule == 0;
        if (rule != 0 && given.data_type >= 0 && given.data_type < static_cast<int>(sizeof(ELEMENT_BITS) / sizeof(int))) {
            o = over_refuge(given, request.refuge);
            is_encoded = broken_rule(o) == 0;
        }
        maps::copy_template(slot, &templates.by_promotion[is_encoded ? o.l2_promotion : 0]);
        if (is_encoded) {
            encode_any(slot, o);
        } else {
            const unsigned extents[1] = {1};
            maps::rebind<1>(slot, request.refuge, extents, nullptr);
        }
        maps::publish(tensor_map, slot, scope);
        return rule;
    });
}

// The template gives all but the address, the extents and the strides.
extern "C" __global__ void __launch_bounds__(warps * warp_threads) rebind_maps(
    const __grid_constant__ Request request, const __grid_constant__ CUtensorMap seed)
{
    for_each_row(request, [&](maps::Slot& slot, CUtensorMap* tensor_map, const Operands& o) {
        const unsigned rule = broken_rule(o);
        maps::copy_template(slot, &seed);
        rebind_any(slot, rule == 0 ? o : over_refuge(o, request.refuge));
        maps::publish(tensor_map, slot, scope);
        return rule;
    });
}

// The slot's own map is the template, and says what the rules ask of it beside the new parameters.
extern "C" __global__ void __launch_bounds__(warps * warp_threads) rebind_own_maps(const __grid_constant__ Request request)
{
    for_each_row(request, [&](maps::Slot& slot, CUtensorMap* tensor_map, const Operands& given) {
        maps::copy_template(slot, tensor_map);
        const unsigned long long word = slot.words[1];
        unsigned long long any = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            any |= slot.words[i];
        }
        Operands o = given;
        o.data_type = TYPE_OF_FORMAT[word >> FORMAT_LOW & FORMAT_MASK];
        o.interleave = static_cast<long long>(word >> INTERLEAVE_LOW & INTERLEAVE_MASK);
        const unsigned refused = any == 0                ? empty_slot
            : (word >> IM2COL_LOW & 1) != 0              ? host_born
            : o.rank != static_cast<long long>((word >> RANK_LOW & RANK_MASK) + 1) ? rank_kept
                                                         : 0;
        if (refused != 0) {
            return refused;  // nothing of the slot's map says how to make it harmless: it stays
        }
        const unsigned rule = broken_rule(o);
        rebind_any(slot, rule == 0 ? o : over_refuge(o, request.refuge));
        maps::publish(tensor_map, slot, scope);
        return rule;
    });
}
