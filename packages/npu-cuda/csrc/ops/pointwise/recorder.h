// Recorder: a value that computes nothing and writes down what is asked of it. An expression of the tables,
// called with recorders, leaves the list of its instructions: what an element costs, and the program of other
// machines.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace npu::pointwise {

struct Instruction {
  std::string name;           // "load", "constant", "add", "fma", "exp", ...
  std::vector<int> operands;  // the instructions whose results it takes
  double constant = 0;        // of a constant: its value; of a load: the number of the input
};

struct Recording {
  std::vector<Instruction> instructions;
  std::vector<int> results;  // the instruction of each output

  // Returns the number of the instruction; constants are written down once.
  int add(Instruction instruction);
  // Operations on numbers; a comparison counts with what it decides.
  int64_t flops() const;
};

// While one lives, the recorders of this thread write into its recording. What they do is here and not in Recorder:
// hundreds of expressions would have a copy of it.
class RecorderScope {
 public:
  explicit RecorderScope(Recording* recording) : before_(current) { current = recording; }
  RecorderScope(const RecorderScope&) = delete;
  RecorderScope& operator=(const RecorderScope&) = delete;
  ~RecorderScope() { current = before_; }

  // Each returns the number of an instruction.
  static int load(int input);
  static int constant(double number);
  static int call(const char* name, std::initializer_list<int> operands);
  static void set_result(int place);

 private:
  Recording* before_;
  static thread_local Recording* current;
};

// L: the numbers that it stands for; some expressions are others for integers.
template <class L>
class Recorder {
 public:
  using Lane = L;

  Recorder() = default;
  Recorder(double constant) : place(RecorderScope::constant(constant)) {}
  static Recorder of(int place) {
    Recorder recorder;
    recorder.place = place;
    return recorder;
  }

  int place;  // of the instruction

  friend Recorder operator+(Recorder a, Recorder b) { return call("add", a, b); }
  friend Recorder operator-(Recorder a, Recorder b) { return call("sub", a, b); }
  friend Recorder operator*(Recorder a, Recorder b) { return call("mul", a, b); }
  friend Recorder operator/(Recorder a, Recorder b) { return call("div", a, b); }
  friend Recorder operator-(Recorder a) { return call("neg", a); }
  friend Recorder operator<(Recorder a, Recorder b) { return call("less", a, b); }
  friend Recorder operator<=(Recorder a, Recorder b) { return call("less_equal", a, b); }
  friend Recorder operator>(Recorder a, Recorder b) { return call("greater", a, b); }
  friend Recorder operator>=(Recorder a, Recorder b) { return call("greater_equal", a, b); }
  friend Recorder operator==(Recorder a, Recorder b) { return call("equal", a, b); }
  friend Recorder operator!=(Recorder a, Recorder b) { return call("not_equal", a, b); }
  friend Recorder operator&&(Recorder a, Recorder b) { return call("and", a, b); }
  friend Recorder operator||(Recorder a, Recorder b) { return call("or", a, b); }
  friend Recorder operator!(Recorder a) { return call("not", a); }
  friend Recorder operator&(Recorder a, Recorder b) { return call("bitwise_and", a, b); }
  friend Recorder operator|(Recorder a, Recorder b) { return call("bitwise_or", a, b); }
  friend Recorder operator^(Recorder a, Recorder b) { return call("bitwise_xor", a, b); }
  friend Recorder operator~(Recorder a) { return call("bitwise_not", a); }

  friend Recorder select(Recorder a, Recorder b, Recorder c) { return call("select", a, b, c); }
  friend Recorder fma(Recorder a, Recorder b, Recorder c) { return call("fma", a, b, c); }
  friend Recorder maximum(Recorder a, Recorder b) { return call("maximum", a, b); }
  friend Recorder minimum(Recorder a, Recorder b) { return call("minimum", a, b); }
  friend Recorder pow(Recorder a, Recorder b) { return call("pow", a, b); }
  friend Recorder fmod(Recorder a, Recorder b) { return call("fmod", a, b); }
  friend Recorder abs(Recorder a) { return call("abs", a); }
  friend Recorder sign(Recorder a) { return call("sign", a); }
  friend Recorder square(Recorder a) { return call("mul", a, a); }
  friend Recorder exp(Recorder a) { return call("exp", a); }
  friend Recorder expm1(Recorder a) { return call("expm1", a); }
  friend Recorder log(Recorder a) { return call("log", a); }
  friend Recorder log1p(Recorder a) { return call("log1p", a); }
  friend Recorder sqrt(Recorder a) { return call("sqrt", a); }
  friend Recorder rsqrt(Recorder a) { return call("rsqrt", a); }
  friend Recorder sigmoid(Recorder a) { return call("sigmoid", a); }
  friend Recorder sin(Recorder a) { return call("sin", a); }
  friend Recorder cos(Recorder a) { return call("cos", a); }
  friend Recorder tanh(Recorder a) { return call("tanh", a); }
  friend Recorder erf(Recorder a) { return call("erf", a); }
  friend Recorder floor(Recorder a) { return call("floor", a); }
  friend Recorder ceil(Recorder a) { return call("ceil", a); }
  friend Recorder round(Recorder a) { return call("round", a); }
  friend Recorder trunc(Recorder a) { return call("trunc", a); }

 private:
  static Recorder call(const char* name, Recorder a) { return of(RecorderScope::call(name, {a.place})); }
  static Recorder call(const char* name, Recorder a, Recorder b) {
    return of(RecorderScope::call(name, {a.place, b.place}));
  }
  static Recorder call(const char* name, Recorder a, Recorder b, Recorder c) {
    return of(RecorderScope::call(name, {a.place, b.place, c.place}));
  }
};

}  // namespace npu::pointwise
