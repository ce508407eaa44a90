// A toy accelerator: see README in __init__.py. Tensors lie in host memory; every kernel is the CPU's,
// run on views of that same memory. What a real device would do asynchronously is only counted, but for
// copies to pinned memory, which arrive late, as they do there.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

namespace {

constexpr auto TOY = c10::DeviceType::PrivateUse1;
constexpr int DEVICES = 2;

// ---- what is counted --------------------------------------------------------------------------

enum Counter { KERNELS, TO_HOST, TO_HOST_LATER, FROM_HOST, SYNCS, EVENTS, QUERIES, BYTES, COUNTERS };
std::atomic<int64_t> counted[COUNTERS];
std::atomic<int64_t> lag{64};            // an event is reached so many kernels later
std::atomic<bool> shares_generator{false};  // with the CPU: programs draw the same numbers there
std::atomic<bool> capturing{false};
std::atomic<bool> without_doubles{false};  // as MPS

// ---- copies that arrive later -----------------------------------------------------------------

struct Arrival {
  int64_t at;  // the number of kernels when it was asked for
  at::Tensor values, target;
};
std::mutex arrivals_lock;
std::deque<Arrival> arrivals;

void deliver(int64_t until) {
  std::vector<Arrival> due;
  {
    std::lock_guard<std::mutex> held(arrivals_lock);
    while (!arrivals.empty() && arrivals.front().at <= until) {
      due.push_back(std::move(arrivals.front()));
      arrivals.pop_front();
    }
  }
  for (auto& one : due) one.target.copy_(one.values);
}

void refuse_while_capturing() {
  TORCH_CHECK(!capturing, "toy: operation not permitted when stream is capturing");
}

void synchronize() {
  refuse_while_capturing();
  counted[SYNCS]++;
  deliver(counted[KERNELS]);
}

// ---- memory -----------------------------------------------------------------------------------

struct Block {  // keeps what the bytes are part of
  c10::DataPtr bytes;
  c10::Storage storage;
  int64_t size;
};

void free_block(void* given) {
  auto* block = static_cast<Block*>(given);
  counted[BYTES] -= block->size;
  delete block;
}

c10::DataPtr on_toy(void* data, Block* block, c10::DeviceIndex index) {
  counted[BYTES] += block->size;
  return {data, block, &free_block, c10::Device(TOY, index)};
}

thread_local c10::DeviceIndex current = 0;

struct ToyAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    auto bytes = c10::GetCPUAllocator()->allocate(size);
    void* data = bytes.get();
    return on_toy(data, new Block{std::move(bytes), {}, int64_t(size)}, current);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t size) const override { std::memcpy(to, from, size); }
};
ToyAllocator toy_allocator;

std::mutex pinned_lock;
std::map<const char*, size_t> pinned;

void free_pinned(void* data) {
  {
    std::lock_guard<std::mutex> held(pinned_lock);
    pinned.erase(static_cast<const char*>(data));
  }
  std::free(data);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    void* data = std::calloc(size ? size : 1, 1);
    std::lock_guard<std::mutex> held(pinned_lock);
    pinned[static_cast<const char*>(data)] = size ? size : 1;
    return {data, data, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t size) const override { std::memcpy(to, from, size); }
};
PinnedAllocator pinned_allocator;

bool is_pinned(const void* data) {
  std::lock_guard<std::mutex> held(pinned_lock);
  auto* place = static_cast<const char*>(data);
  auto next = pinned.upper_bound(place);
  return next != pinned.begin() && (--next, place < next->first + next->second);
}

// ---- the same bytes as a tensor of the CPU, and back ------------------------------------------

bool is_toy(const at::Tensor& t) { return t.defined() && t.device().type() == TOY; }

at::Tensor like_it(at::Tensor made, const at::Tensor& like) {
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return made;
}

struct Call {  // one kernel: the tensors of the toy that it was given, and those the CPU sees
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  std::vector<std::pair<c10::Storage, c10::Storage>> storages;
  c10::DeviceIndex index = current;

  at::Tensor to_cpu(const at::Tensor& t) {
    if (!is_toy(t)) return t;
    for (auto& pair : pairs)
      if (pair.first.is_same(t)) return pair.second;
    index = t.device().index();
    c10::InferenceMode off(false);
    auto view = at::detail::make_tensor<c10::TensorImpl>(
        cpu_storage(t.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
    pairs.emplace_back(t, like_it(view, t));
    return view;
  }

  c10::Storage cpu_storage(const c10::Storage& toy) {
    for (auto& pair : storages)
      if (pair.first.is_alias_of(toy)) return pair.second;
    auto* block = new Block{{}, toy, 0};
    c10::DataPtr bytes{toy.mutable_data(), block, &free_block, c10::Device(c10::DeviceType::CPU)};
    c10::Storage made(c10::Storage::use_byte_size_t(), toy.nbytes(), std::move(bytes),
                      c10::GetCPUAllocator(), /*resizable=*/true);
    storages.emplace_back(toy, made);
    return made;
  }

  at::Tensor to_toy(const at::Tensor& t) {
    if (!t.defined() || is_toy(t)) return t;
    for (auto& pair : pairs)
      if (pair.second.is_same(t)) return pair.first;
    if (!t.has_storage()) return t;
    for (auto& pair : pairs)  // a view, of the kind that its base is
      if (pair.second.storage().is_alias_of(t.storage()))
        return like_it(at::detail::make_tensor<c10::TensorImpl>(
            c10::TensorImpl::VIEW, toy_storage(t.storage()), pair.first.key_set(), t.dtype()), t);
    return like_it(at::detail::make_tensor<c10::TensorImpl>(
        toy_storage(t.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), t.dtype()), t);
  }

  c10::Storage toy_storage(const c10::Storage& cpu) {
    for (auto& pair : storages)
      if (pair.second.is_alias_of(cpu)) return pair.first;
    void* data = cpu.mutable_data();
    auto bytes = on_toy(data, new Block{{}, cpu, int64_t(cpu.nbytes())}, index);
    c10::Storage made(c10::Storage::use_byte_size_t(), cpu.nbytes(), std::move(bytes),
                      &toy_allocator, /*resizable=*/true);
    storages.emplace_back(made, cpu);
    return made;
  }

  void take_over_sizes() {  // of `out=` tensors that the kernel has resized
    for (auto& [toy, cpu] : storages) {
      if (toy.data() == cpu.data()) continue;
      auto bytes = on_toy(cpu.mutable_data(), new Block{{}, cpu, int64_t(cpu.nbytes())}, index);
      toy.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(bytes));
      toy.set_nbytes(cpu.nbytes());
    }
    for (auto& [toy, cpu] : pairs)
      if (toy.sizes() != cpu.sizes() || toy.strides() != cpu.strides())
        toy.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
  }

  template <typename F>
  c10::IValue each(const c10::IValue& value, F change) {
    if (value.isTensor()) return change(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> made;
      for (const at::Tensor& t : value.toTensorVector()) made.push_back(change(t));
      return made;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> made;
      for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector())
        made.push_back(t ? std::optional<at::Tensor>(change(*t)) : std::nullopt);
      return made;
    }
    return value;
  }
};

// ---- randomness -------------------------------------------------------------------------------

struct ToyGenerator : at::CPUGeneratorImpl {
  explicit ToyGenerator(c10::DeviceIndex index) {
    device_ = c10::Device(TOY, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

const at::Generator& default_generator(c10::DeviceIndex index) {
  static at::Generator made[DEVICES] = {
      at::make_generator<ToyGenerator>(0), at::make_generator<ToyGenerator>(1)};
  return made[index < 0 ? current : index];
}

struct Drawing {  // the CPU's generator stands at the device's own state meanwhile
  std::optional<at::Generator> generator;
  at::Generator cpu = at::detail::getDefaultCPUGenerator();
  at::Tensor before;

  explicit Drawing(std::optional<at::Generator> given) : generator(std::move(given)) {
    if (!generator) return;
    before = cpu.get_state();
    cpu.set_state(generator->get_state());
  }
  ~Drawing() {
    if (!generator) return;
    generator->set_state(cpu.get_state());
    cpu.set_state(before);
  }
};

// ---- kernels ----------------------------------------------------------------------------------

bool masks(const c10::IValue& value) {
  if (!value.isOptionalTensorList() && !value.isTensorList()) return false;
  auto list = value.toListRef();
  return std::any_of(list.begin(), list.end(), [](const c10::IValue& v) {
    return v.isTensor() && v.toTensor().defined() &&
        (v.toTensor().scalar_type() == at::kBool || v.toTensor().scalar_type() == at::kByte);
  });
}

bool is_view(const c10::FunctionSchema& schema) {  // nothing is launched for one
  if (schema.returns().empty()) return false;
  const auto* alias = schema.returns()[0].alias_info();
  return alias != nullptr && !alias->isWrite();
}

void kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto& name = schema.name();
  const size_t given = schema.arguments().size();
  const bool indexes = name.rfind("aten::index", 0) == 0 || name.rfind("aten::_index", 0) == 0;
  bool waits = op.hasTag(at::Tag::data_dependent_output) ||
      (op.hasTag(at::Tag::dynamic_output_shape) && !indexes);
  const bool draws = op.hasTag(at::Tag::nondeterministic_seeded);
  Call call;
  std::optional<at::Generator> generator;
  bool foreign = false, known = false;
  for (size_t i = stack->size() - given; i < stack->size(); i++) {
    auto& value = (*stack)[i];
    if (value.isDevice()) {
      if (value.toDevice().has_index()) call.index = value.toDevice().index();
      value = c10::Device(c10::DeviceType::CPU);
    } else if (value.isGenerator()) {
      generator = value.toGenerator();
      value = c10::IValue();
    } else {
      if (indexes && masks(value)) waits = true;
      value = call.each(value, [&](const at::Tensor& t) {
        known = known || is_toy(t);
        foreign = foreign || (t.defined() && !is_toy(t) && t.dim() > 0);
        return call.to_cpu(t);
      });
    }
  }
  TORCH_CHECK(!(foreign && known && !indexes),
              "Expected all tensors to be on the same device, but found at least two devices, toy and cpu! (",
              name, ")");
  if (!is_view(schema)) counted[KERNELS]++;
  if (waits) synchronize();
  {
    if (draws && !generator && !shares_generator) generator = default_generator(call.index);
    Drawing drawing(draws ? generator : std::nullopt);
    at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  call.take_over_sizes();
  const size_t returned = schema.returns().size();
  for (size_t i = stack->size() - returned; i < stack->size(); i++)
    (*stack)[i] = call.each((*stack)[i], [&](const at::Tensor& t) { return call.to_toy(t); });
}

c10::DispatchKeySet toy_keys() { return c10::DispatchKeySet(c10::DispatchKey::PrivateUse1); }

struct On {  // allocations go to the current device
  c10::DeviceIndex before = current;
  explicit On(std::optional<c10::Device> device) {
    if (device && device->has_index()) current = device->index();
  }
  ~On() { current = before; }
};

void refuse_doubles(std::optional<at::ScalarType> dtype) {
  TORCH_CHECK(!(without_doubles && dtype == at::kDouble), "toy: this device has no float64");
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  On on(device);
  refuse_doubles(dtype);
  return at::detail::empty_generic(size, &toy_allocator, toy_keys(), c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  On on(device);
  refuse_doubles(dtype);
  return at::detail::empty_strided_generic(size, stride, &toy_allocator, toy_keys(), c10::dtype_or_default(dtype));
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  counted[TO_HOST]++;
  synchronize();
  Call call;
  at::AutoDispatchBelowADInplaceOrView below;
  return at::_local_scalar_dense(call.to_cpu(self));
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  Call call;
  at::AutoDispatchBelowADInplaceOrView below;
  if (is_toy(self) && is_toy(target)) {
    counted[KERNELS]++;
  } else if (is_toy(self) && non_blocking && is_pinned(target.const_data_ptr())) {
    counted[TO_HOST_LATER]++;
    auto values = call.to_cpu(self).clone();
    std::lock_guard<std::mutex> held(arrivals_lock);
    arrivals.push_back({counted[KERNELS], values, target});
    return target;
  } else {  // from pageable memory too, torch waits on CUDA unless asked not to
    counted[is_toy(self) ? TO_HOST : FROM_HOST]++;
    if (is_toy(self) || !non_blocking) synchronize();
  }
  call.to_cpu(target).copy_(call.to_cpu(self));
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  const_cast<at::Tensor&>(target).resize_(self.sizes());
  return copy_from(self, target, false);
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  if (stride.data() == nullptr || stride.size() != size.size()) {
    impl->set_sizes_contiguous(size);
    impl->set_storage_offset(offset);
  } else {
    impl->set_sizes_and_strides(size, stride, offset);
  }
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, c10::Storage source) {
  const int64_t size = source.nbytes() / self.dtype().itemsize();
  return set_storage(self, std::move(source), 0, {size}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  counted[KERNELS]++;
  Call call;
  at::AutoDispatchBelowADInplaceOrView below;
  auto with = bias && bias->defined() ? std::optional<at::Tensor>(call.to_cpu(*bias)) : std::nullopt;
  return call.to_toy(at::convolution(call.to_cpu(input), call.to_cpu(weight), with, stride, padding, dilation,
                                     transposed, output_padding, groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> mask) {
  counted[KERNELS]++;
  Call call;
  at::AutoDispatchBelowADInplaceOrView below;
  const std::vector<int64_t> bias{transposed ? weight.size(1) * groups : weight.size(0)};
  auto made = at::convolution_backward(call.to_cpu(grad), call.to_cpu(input), call.to_cpu(weight),
                                       at::OptionalIntArrayRef(bias), stride, padding, dilation, transposed,
                                       output_padding, groups, mask);
  return {call.to_toy(std::get<0>(made)), call.to_toy(std::get<1>(made)), call.to_toy(std::get<2>(made))};
}

int64_t fused_sdp_choice(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                         double, bool, std::optional<double>, bool) {
  return 0;  // attention by plain operations
}

// ---- cells of recurrent layers, which have no kernel of their own on the CPU ---------------------

using Maybe = std::optional<at::Tensor>;

at::Tensor plus(const at::Tensor& gates, const Maybe& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& cx, const Maybe& bias, const Maybe& more) {
  auto gates = (plus(input, bias) + plus(hidden, more)).chunk(4, 1);
  auto i = gates[0].sigmoid(), f = gates[1].sigmoid(), g = gates[2].tanh(), o = gates[3].sigmoid();
  auto cy = f * cx + i * g;
  return {o * cy.tanh(), cy, at::cat({i, f, g, o}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const Maybe& grad_hy, const Maybe& grad_cy, const at::Tensor& cx, const at::Tensor& cy,
    const at::Tensor& workspace, bool has_bias) {
  auto gates = workspace.chunk(4, 1);
  auto &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
  auto tanh = cy.tanh();
  auto hy = grad_hy && grad_hy->defined() ? *grad_hy : at::zeros_like(cy);
  auto c = hy * o * (1 - tanh * tanh);
  if (grad_cy && grad_cy->defined()) c = c + *grad_cy;
  auto made = at::cat({c * g * i * (1 - i), c * cx * f * (1 - f), c * i * (1 - g * g), hy * tanh * o * (1 - o)}, 1);
  return {made, c * f, has_bias ? made.sum(0) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& input, const at::Tensor& hidden, const at::Tensor& hx, const Maybe& bias, const Maybe& more) {
  auto in = plus(input, bias).chunk(3, 1), hid = plus(hidden, more).chunk(3, 1);
  auto r = (in[0] + hid[0]).sigmoid(), z = (in[1] + hid[1]).sigmoid();
  auto n = (in[2] + r * hid[2]).tanh();
  return {n + z * (hx - n), at::cat({r, z, n, hx, hid[2]}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad, const at::Tensor& workspace, bool has_bias) {
  auto kept = workspace.chunk(5, 1);
  auto &r = kept[0], &z = kept[1], &n = kept[2], &hx = kept[3], &hn = kept[4];
  auto dn = grad * (1 - z) * (1 - n * n), dz = grad * (hx - n) * z * (1 - z), dr = dn * hn * r * (1 - r);
  auto in = at::cat({dr, dz, dn}, 1), hidden = at::cat({dr, dz, dn * r}, 1);
  return {in, hidden, grad * z, has_bias ? in.sum(0) : at::Tensor(), has_bias ? hidden.sum(0) : at::Tensor()};
}

// ---- streams, events, devices -----------------------------------------------------------------

struct Event {
  int64_t at;
};

thread_local c10::StreamId streams[DEVICES];
std::atomic<int64_t> made_streams{0};

struct ToyGuard final : c10::impl::DeviceGuardImplInterface {
  ToyGuard() = default;
  explicit ToyGuard(c10::DeviceType) {}
  c10::DeviceType type() const override { return TOY; }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {TOY, current}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) current = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { setDevice(device); }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, at(device), streams[at(device).index()]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, at(device)); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return c10::Stream(c10::Stream::UNSAFE, at(device), ++made_streams);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    auto before = getStream(stream.device());
    streams[stream.device_index()] = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    counted[EVENTS]++;
    if (*event == nullptr) *event = new Event{};
    static_cast<Event*>(*event)->at = counted[KERNELS];
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void* event) const override {
    counted[QUERIES]++;
    if (event == nullptr) return true;
    const int64_t at = static_cast<Event*>(event)->at;
    if (counted[KERNELS] < at + lag) return false;
    deliver(at);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) synchronize();
  }
  bool queryStream(const c10::Stream&) const override {
    counted[QUERIES]++;
    std::lock_guard<std::mutex> held(arrivals_lock);
    return arrivals.empty();
  }
  bool isStreamCapturing(const c10::Stream&) const override { return capturing; }
  void synchronizeStream(const c10::Stream&) const override { synchronize(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { synchronize(); }
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 0.0; }

 private:
  static c10::Device at(c10::Device device) { return device.has_index() ? device : c10::Device(TOY, current); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, ToyGuard);

struct ToyHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return DEVICES; }
  void setCurrentDevice(c10::DeviceIndex index) const override { current = index; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    auto before = current;
    current = index;
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<ToyGenerator>(index < 0 ? current : index);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    On on(storage.device());
    auto bytes = toy_allocator.allocate(size);
    std::memcpy(bytes.get(), storage.data(), std::min(size, storage.nbytes()));
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(bytes));
    storage.set_nbytes(size);
  }
};

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new ToyHooks());
  c10::SetAllocator(TOY, &toy_allocator);
  return true;
}();

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  m.impl("_fused_sdp_choice", fused_sdp_choice);
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
  // One kernel for a whole list, as on CUDA.
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames())
    if (name.name.rfind("aten::_foreach_", 0) == 0)
      m.impl((name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name)).c_str(),
             torch::CppFunction::makeFromBoxedFunction<&kernel>());
}

// A copy resolves these bits itself; torch's own way to resolve them is a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define WIDE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(WIDE)
}

}  // namespace

// ---- for Python, by ctypes --------------------------------------------------------------------

extern "C" {
int64_t toy_counter(int which) { return counted[which]; }
void toy_reset() {
  for (int i = 0; i < BYTES; i++) counted[i] = 0;
  std::lock_guard<std::mutex> held(arrivals_lock);
  for (auto& one : arrivals) one.at = 0;
}
void toy_synchronize() { synchronize(); }
void toy_set_lag(int64_t kernels) { lag = kernels; }
void toy_share_generator(bool shares) { shares_generator = shares; }
void toy_without_doubles(bool on) { without_doubles = on; }
void toy_capture(bool on) { capturing = on; }
int toy_device() { return current; }
void toy_set_device(int index) { current = index; }
void toy_seed(int index, uint64_t seed) { at::Generator(default_generator(index)).set_current_seed(seed); }
int64_t toy_state_size() { return default_generator(0).get_state().nbytes(); }
void toy_get_state(int index, void* into) {
  auto state = default_generator(index).get_state();
  std::memcpy(into, state.const_data_ptr(), state.nbytes());
}
void toy_set_state(int index, const void* from) {
  auto state = default_generator(index).get_state();
  std::memcpy(state.mutable_data_ptr(), from, state.nbytes());
  at::Generator(default_generator(index)).set_state(state);
}
}
