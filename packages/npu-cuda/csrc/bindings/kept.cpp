#include "bindings/kept.h"

#include <iterator>

#include "bindings/unlocked.h"
#include "core/later.h"

namespace npu::bindings {
namespace {

struct Kept {
  StreamUses uses;
  std::shared_ptr<void> what;
};

std::vector<Kept>& all_kept() {
  static auto* all = new std::vector<Kept>();  // outlives every user
  return *all;
}

bool is_over = false;  // the interpreter ends: nobody will ask again

}  // namespace

void keep_shared_until_passed(const StreamUses& uses, std::shared_ptr<void> what) {
  drop_passed();
  if (is_over) (void)without_gil([&] { return uses.wait(); });
  else if (!uses.have_passed()) all_kept().push_back({uses, std::move(what)});
}

void drop_passed() {
  if (has_dropped()) without_gil(drop_now);
  std::vector<Kept>& all = all_kept();
  std::vector<Kept> passed;  // destroyed when the list is whole again: that runs code of others
  const auto is_used = [](const Kept& kept) { return !kept.uses.have_passed(); };
  const auto first = std::partition(all.begin(), all.end(), is_used);
  std::move(first, all.end(), std::back_inserter(passed));
  all.erase(first, all.end());
}

void drop_all_kept() {
  is_over = true;
  without_gil(drop_now);
  const std::vector<Kept> rest = std::move(all_kept());
  all_kept().clear();
  without_gil([&] {
    for (const Kept& kept : rest) (void)kept.uses.wait();  // a failure has been reported, or never will be
  });
}

}  // namespace npu::bindings
