// The element types a tensor can have.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bf16.h"
#include "base/check.h"
#include "base/fp8.h"

namespace quintet {

enum class DType : std::uint8_t { kF32, kBF16, kI32, kI64, kI16, kU8, kE4M3, kE5M2 };

constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kI16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
    case DType::kE4M3:
    case DType::kE5M2:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kI16:
      return "i16";
    case DType::kU8:
      return "u8";
    case DType::kE4M3:
      return "e4m3";
    case DType::kE5M2:
      return "e5m2";
  }
  return "?";
}

// Whether values are computed with as they are.
constexpr bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16;
}
// Whether they are codes of base/fp8.h, operands of products and nothing else.
constexpr bool is_fp8(DType dtype) {
  return dtype == DType::kE4M3 || dtype == DType::kE5M2;
}

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::kBF16;
}
template <>
constexpr DType dtype_of<std::int16_t>() {
  return DType::kI16;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::kU8;
}

template <>
constexpr DType dtype_of<e4m3>() {
  return DType::kE4M3;
}
template <>
constexpr DType dtype_of<e5m2>() {
  return DType::kE5M2;
}

// Calls body(T{}) with the C++ type of a floating dtype.
template <class Body>
decltype(auto) with_float_type(DType dtype, Body&& body) {
  QT_CHECK(is_float(dtype), "expected a floating dtype, got {}", name_of(dtype));
  return dtype == DType::kF32 ? body(float{}) : body(bf16{});
}

// The same for codes of eight bits.
template <class Body>
decltype(auto) with_fp8_type(DType dtype, Body&& body) {
  QT_CHECK(is_fp8(dtype), "expected eight-bit floats, got {}", name_of(dtype));
  return dtype == DType::kE4M3 ? body(e4m3{}) : body(e5m2{});
}

}  // namespace quintet
