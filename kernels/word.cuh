// The words of WORD_BYTES that ordinary loads and stores move.
#pragma once

template <int Bytes>
struct Words;
template <>
struct Words<1> { using Word = unsigned char; };
template <>
struct Words<2> { using Word = unsigned short; };
template <>
struct Words<4> { using Word = unsigned; };
template <>
struct Words<8> { using Word = unsigned long long; };
template <>
struct Words<16> { using Word = uint4; };

using Word = Words<WORD_BYTES>::Word;
