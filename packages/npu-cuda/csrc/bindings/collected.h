// Slots of nanobind for classes whose objects hold Python objects, so that the garbage collector sees cycles of them.
#pragma once

#include "bindings/errors.h"

namespace npu::bindings {

template <class Holder>
int traverse_holder(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Holder>(self)->traverse(visit, arg) : 0;
}

template <class Holder>
int clear_holder(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Holder>(self)->clear();
  return 0;
}

template <class Holder>
PyType_Slot* collected() {
  static PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_holder<Holder>)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear_holder<Holder>)},
                                {0, nullptr}};
  return slots;
}

}  // namespace npu::bindings
