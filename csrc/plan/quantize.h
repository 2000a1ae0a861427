// Floats of a checkpoint into the quantized forms of csrc/kernels/formats.h, at load.
#ifndef OCTAVO_PLAN_QUANTIZE_H_
#define OCTAVO_PLAN_QUANTIZE_H_

#include <cstdint>

#include "plan/quant_blocks.h"

namespace octavo {

// A group holding a number that is not finite becomes NaN as a whole, so that what is computed from
// it is seen to be wrong. Scales and minima are rounded to fp16, in which they are kept, before
// numbers are rounded to them.

// 32 numbers as scale * u + minimum, u from 0 to 15, by the least sum of squared errors that a
// search over clipped ranges finds.
QuantGroup quantize_u4(const float* x);
// 32 numbers as scale * q, q from -127 to 127.
QuantGroup quantize_s8(const float* x);
// A row of k numbers as scale * q[k], q from -127 to 127; returns the scale.
float quantize_row_s8(const float* x, int64_t k, int8_t* q);

}  // namespace octavo

#endif  // OCTAVO_PLAN_QUANTIZE_H_
