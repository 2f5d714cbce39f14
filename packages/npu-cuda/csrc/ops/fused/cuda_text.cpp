#include "ops/fused/cuda_text.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ops/pointwise/pointwise.h"

namespace npu::fusion {

using pointwise::Class;
using pointwise::Element;
using pointwise::Instruction;
using pointwise::Recording;

namespace {

constexpr uint32_t kAccessBytes = 16;

// Numbers are converted as in cuda_rows.cuh. What needs the instructions of a GPU, emulated builds bring themselves.
constexpr char kPrelude[] = R"cuda(
using i64 = long long;
using u64 = unsigned long long;
struct half { unsigned short bits; };
struct bfloat16 { unsigned short bits; };
struct truth { unsigned char byte; };

#ifndef NPU_EMULATE
__device__ float half_to_float(unsigned short x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
__device__ unsigned short float_to_half(float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
__device__ unsigned short float_to_bfloat16(float x) {
  unsigned short y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
// A number that the compiler does not know: it would compute functions of it in another way.
__device__ float opaque(float x) { asm volatile("" : "+f"(x)); return x; }
__device__ double opaque(double x) { asm volatile("" : "+d"(x)); return x; }
__device__ i64 opaque(i64 x) { asm volatile("" : "+l"(x)); return x; }
#endif
__device__ float widen(half x) { return half_to_float(x.bits); }
__device__ float widen(bfloat16 x) { return __uint_as_float(unsigned(x.bits) << 16); }
__device__ bool widen(truth x) { return x.byte != 0; }
template <class T> __device__ T widen(T x) { return x; }

template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;

template <class To, class From>
__device__ To convert(From from) {
  const auto x = widen(from);
  if constexpr (same<To, half>) return {float_to_half(float(x))};
  else if constexpr (same<To, bfloat16>) return {float_to_bfloat16(float(x))};
  else if constexpr (same<To, truth>) return {x != 0};
  else if constexpr (sizeof(To) < 8 && !same<To, float>) return To(i64(x));
  else return To(x);
}

// Of integers: towards zero; 0 where the divisor is 0.
__device__ i64 quotient(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? i64(0 - u64(a)) : a / b; }
__device__ i64 power(i64 x, i64 n) {
  if (n < 0) return x == 1 ? 1 : x == -1 ? (n % 2 == 0 ? 1 : -1) : 0;
  u64 result = 1;
  for (u64 factor = u64(x); n > 0; n >>= 1, factor *= factor) {
    if (n & 1) result *= factor;
  }
  return i64(result);
}

template <class T, int n> struct alignas(sizeof(T) * n) Access { T items[n]; };

template <class T, int n>
__device__ Access<T, n> load(const void* data, i64 first, i64 numel) {
  const T* from = static_cast<const T*>(data) + first;
  if (first + n <= numel) return *reinterpret_cast<const Access<T, n>*>(from);
  Access<T, n> some{};
#pragma unroll
  for (int i = 0; i < n; ++i) {
    if (first + i < numel) some.items[i] = from[i];
  }
  return some;
}

template <class T, int n>
__device__ Access<T, n> load_single(const void* data) {
  Access<T, n> all;
  for (int i = 0; i < n; ++i) all.items[i] = *static_cast<const T*>(data);
  return all;
}

template <class T, int n>
__device__ void store(const Access<T, n>& some, void* data, i64 first, i64 numel) {
  T* to = static_cast<T*>(data) + first;
  if (first + n <= numel) {
    *reinterpret_cast<Access<T, n>*>(to) = some;
    return;
  }
#pragma unroll
  for (int i = 0; i < n; ++i) {
    if (first + i < numel) to[i] = some.items[i];
  }
}

template <int rank, int n>
__device__ void find(const Rows& rows, unsigned left, unsigned (&at)[n]) {
#pragma unroll
  for (int axis = 0; axis < rank; ++axis) {
    const unsigned next = (__umulhi(left, rows.multiplier[axis]) + left) >> rows.shift[axis];
    const unsigned index = left - next * rows.shape[axis];
    left = next;
#pragma unroll
    for (int k = 0; k < n; ++k) at[k] += index * rows.strides[k][axis];
  }
}
)cuda";

struct Spelling {
  const char* of_reals;     // $a, $b, $c: the operands; exp@: expf or exp
  const char* of_integers;  // null: the same
  bool is_truth = false;
};

const Spelling& spelling_of(const std::string& instruction) {
  static const std::map<std::string, Spelling> all = {
      {"add", {"$a + $b", "i64(u64($a) + u64($b))"}},
      {"sub", {"$a - $b", "i64(u64($a) - u64($b))"}},
      {"mul", {"$a * $b", "i64(u64($a) * u64($b))"}},
      {"div", {"$a / $b", "quotient($a, $b)"}},
      {"neg", {"-$a", "i64(0 - u64($a))"}},
      {"fma", {"fma@($a, $b, $c)", "i64(u64($a) * u64($b) + u64($c))"}},
      {"less", {"$a < $b", nullptr, true}},
      {"less_equal", {"$a <= $b", nullptr, true}},
      {"greater", {"$a > $b", nullptr, true}},
      {"greater_equal", {"$a >= $b", nullptr, true}},
      {"equal", {"$a == $b", nullptr, true}},
      {"not_equal", {"$a != $b", nullptr, true}},
      {"and", {"$a && $b", nullptr, true}},
      {"or", {"$a || $b", nullptr, true}},
      {"not", {"!$a", nullptr, true}},
      {"select", {"$a ? $b : $c", nullptr}},
      {"bitwise_and", {"$a & $b", nullptr}},
      {"bitwise_or", {"$a | $b", nullptr}},
      {"bitwise_xor", {"$a ^ $b", nullptr}},
      {"bitwise_not", {"~$a", nullptr}},
      {"maximum", {"$a > $b || $a != $a ? $a : $b", nullptr}},
      {"minimum", {"$a < $b || $a != $a ? $a : $b", nullptr}},
      {"pow", {"pow@($a, $b)", "power($a, $b)"}},
      {"fmod", {"fmod@($a, $b)", "i64(u64($a) - u64($b) * u64(quotient($a, $b)))"}},
      {"abs", {"$a < 0 ? -$a : $a + 0", "$a < 0 ? i64(0 - u64($a)) : $a"}},
      {"sign", {"$T($a > 0) - $T($a < 0)", nullptr}},
      {"exp", {"exp@($a)", nullptr}},
      {"expm1", {"expm1@($a)", nullptr}},
      {"log", {"log@($a)", nullptr}},
      {"log1p", {"log1p@($a)", nullptr}},
      {"sqrt", {"sqrt@($a)", nullptr}},
      {"rsqrt", {"1 / sqrt@($a)", nullptr}},
      {"sigmoid", {"1 / (1 + exp@(-$a))", nullptr}},
      {"sin", {"sin@($a)", nullptr}},
      {"cos", {"cos@($a)", nullptr}},
      {"tanh", {"tanh@($a)", nullptr}},
      {"erf", {"erf@($a)", nullptr}},
      {"floor", {"floor@($a)", nullptr}},
      {"ceil", {"ceil@($a)", nullptr}},
      {"round", {"nearbyint@($a)", nullptr}},
      {"trunc", {"trunc@($a)", nullptr}},
  };
  return all.at(instruction);
}

const char* name_of(Element element) {
  static constexpr const char* names[] = {"float", "half",  "bfloat16",    "double",        "i64",
                                          "int",   "short", "signed char", "unsigned char", "truth"};
  return names[static_cast<int>(element)];
}

const char* name_of(Class type) { return name_of(pointwise::stored_as(type)); }

std::string printed(const char* format, double x) {
  char text[40];
  std::snprintf(text, sizeof(text), format, x);
  return std::string(text).find_first_of(".e") == std::string::npos ? std::string(text) + ".0" : text;
}

// As Value takes it: rounded to the class.
std::string constant_text(Class type, double x) {
  if (type == pointwise::kInt64) {
    return "i64(" + std::to_string(static_cast<uint64_t>(pointwise::number<int64_t>(x))) + "ull)";
  }
  const bool is_float = type == pointwise::kFloat32;
  const double rounded = is_float ? static_cast<float>(x) : x;
  if (std::isfinite(rounded)) return is_float ? printed("%.9g", rounded) + "f" : printed("%.17g", rounded);
  const char* bits = std::isnan(rounded) ? "0x7fc00000u" : rounded > 0 ? "0x7f800000u" : "0xff800000u";
  return std::string(name_of(type)) + "(__uint_as_float(" + bits + "))";
}

// The statements of one step.
class StepText {
 public:
  StepText(Class type, const Recording& recording) : type_(type), all_(recording.instructions) {}

  std::string statement(int place) const {
    const Instruction& it = instruction(place);
    return std::string("    const ") + (is_truth(place) ? "bool" : name_of(type_)) + " v" + std::to_string(place) +
           " = " + expression(it) + ";\n";
  }

  // A result, or an operand that is a number.
  std::string number(int place, bool is_opaque = false) const {
    const Instruction& it = instruction(place);
    if (it.name != "constant") {
      const std::string name = "v" + std::to_string(place);
      return is_truth(place) ? std::string(name_of(type_)) + "(" + name + ")" : name;
    }
    const std::string text = constant_text(type_, it.constant);
    return is_opaque ? "opaque(" + text + ")" : text[0] == '-' ? "(" + text + ")" : text;
  }

 private:
  const Instruction& instruction(int place) const { return all_[static_cast<size_t>(place)]; }
  bool is_truth(int place) const {
    const std::string& name = instruction(place).name;
    return name != "load" && name != "constant" && spelling_of(name).is_truth;
  }

  std::string expression(const Instruction& it) const {
    const Spelling& spelling = spelling_of(it.name);
    const bool is_whole = type_ == pointwise::kInt64 && spelling.of_integers;
    std::string text;
    for (const char* c = is_whole ? spelling.of_integers : spelling.of_reals; *c; ++c) {
      if (*c == '@') text += type_ == pointwise::kFloat32 ? "f" : "";
      else if (*c != '$') text += *c;
      else if (*++c == 'T') text += name_of(type_);
      else text += operand(it, static_cast<size_t>(*c - 'a'));
    }
    return text;
  }

  // Truths are operands of what takes truths.
  std::string operand(const Instruction& it, size_t i) const {
    const int place = it.operands[i];
    const bool takes_truth = it.name == "and" || it.name == "or" || it.name == "not" || (it.name == "select" && i == 0);
    const bool both = it.name == "not_equal" && is_truth(it.operands[0]) && is_truth(it.operands[1]);
    if (takes_truth || both) return "v" + std::to_string(place);
    return number(place, it.name == "pow" || it.name == "fmod");
  }

  Class type_;
  const std::vector<Instruction>& all_;
};

std::string variable(uint32_t tensor) { return "t" + std::to_string(tensor); }

std::string step_text(const Chain& chain, const ChainStep& step) {
  const Recording recording = step.op->record(step.attrs);
  const Class type = step.op->type;
  const StepText text(type, recording);
  std::string out;
  for (const uint32_t tensor : step.outputs) {
    if (tensor >= chain.externals) out += std::string("  ") + name_of(chain.tensors[tensor].element) + " " + variable(tensor) + ";\n";
  }
  out += "  {  // " + std::string(step.op->row.name) + "\n";
  for (int place = 0; place < static_cast<int>(recording.instructions.size()); ++place) {
    const Instruction& it = recording.instructions[static_cast<size_t>(place)];
    if (it.name == "constant") continue;
    if (it.name == "load") {
      const uint32_t tensor = step.inputs[static_cast<size_t>(it.constant)];
      out += std::string("    const ") + name_of(type) + " v" + std::to_string(place) + " = convert<" + name_of(type) + ">(" +
             variable(tensor) + ");\n";
    } else {
      out += text.statement(place);
    }
  }
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    const uint32_t tensor = step.outputs[i];
    out += "    " + variable(tensor) + " = convert<" + name_of(chain.tensors[tensor].element) + ">(" +
           text.number(recording.results[i], true) + ");\n";
  }
  return out + "  }\n";
}

// The parameters, or the arguments, of all tensors of the call.
template <class F>
std::string list_of(const Chain& chain, F each) {
  std::string out;
  for (uint32_t i = 0; i < chain.externals; ++i) out += (i == 0 ? "" : ", ") + each(i, std::string(name_of(chain.tensors[i].element)));
  return out;
}

std::string element_text(const Chain& chain) {
  const auto parameter = [&](uint32_t i, const std::string& type) {
    return type + (i < chain.inputs ? " " : "& ") + variable(i);
  };
  std::string out = "\n__device__ inline void compute(" + list_of(chain, parameter) + ") {\n";
  for (const ChainStep& step : chain.steps) out += step_text(chain, step);
  return out + "}\n\n";
}

std::string flat_text(const Chain& chain, const CudaLayout& layout) {
  const std::string n = std::to_string(layout.items(chain));
  std::string reads, writes;
  for (uint32_t i = 0; i < chain.externals; ++i) {
    const std::string access = "<" + std::string(name_of(chain.tensors[i].element)) + ", " + n + ">", t = variable(i);
    const std::string data = "rows.data[" + std::to_string(i) + "]", range = ", first, rows.numel);\n";
    if (i >= chain.inputs) {
      reads += "  Access" + access + " " + t + ";\n";
      writes += "  store(" + t + ", " + data + range;
    } else if (layout.single >> i & 1) {
      reads += "  const auto " + t + " = load_single" + access + "(" + data + ");\n";
    } else {
      reads += "  const auto " + t + " = load" + access + "(" + data + range;
    }
  }
  const auto item = [](uint32_t i, const std::string&) { return variable(i) + ".items[i]"; };
  return "  const i64 first = (i64(blockIdx.x) * " + std::to_string(kChainThreads) + " + threadIdx.x) * " + n + ";\n" +
         "  if (first >= rows.numel) return;\n" + reads + "#pragma unroll\n  for (int i = 0; i < " + n +
         "; ++i) compute(" + list_of(chain, item) + ");\n" + writes;
}

std::string nested_text(const Chain& chain, const CudaLayout& layout) {
  const auto place = [&](uint32_t i, const std::string& type) {
    const std::string number = std::to_string(i);
    return "static_cast<" + type + "*>(rows.data[" + number + "])[at[" + number + "]]";
  };
  const std::string count = std::to_string(chain.externals);
  return "  const unsigned i = blockIdx.x * " + std::to_string(kChainThreads) + "u + threadIdx.x;\n" +
         "  if (i >= rows.numel) return;\n  unsigned at[" + count + "] = {};\n  find<" + std::to_string(layout.rank) +
         ", " + count + ">(rows, i, at);\n  compute(" + list_of(chain, place) + ");\n";
}

}  // namespace

CudaLayout::CudaLayout(const pointwise::Nest& nest, const OpCall& call) : is_flat(nest.is_flat()), rank(nest.rank) {
  for (int i = 0; i < nest.operands; ++i) {
    if (i < call.num_inputs && nest.is_constant(i)) single |= 1u << i;
    else is_flat &= nest.strides[i][0] == 1 && pointwise::operand_of(call, i).alignment >= kAccessBytes;
  }
}

int CudaLayout::items(const Chain& chain) const {
  if (!is_flat) return 1;
  int64_t widest = 1;
  for (size_t i = 0; i < chain.externals; ++i) widest = std::max(widest, item_bytes(chain.tensors[i].desc.dtype));
  return static_cast<int>(kAccessBytes / widest);
}

std::string cuda_text(const Chain& chain, const CudaLayout& layout) {
  return std::string(kRowsText) + kPrelude + element_text(chain) + "extern \"C\" __global__ void __launch_bounds__(" +
         std::to_string(kChainThreads) + ") " + kChainKernel + "(const Rows rows) {\n" +
         (layout.is_flat ? flat_text(chain, layout) : nested_text(chain, layout)) + "}\n";
}

}  // namespace npu::fusion
