"""Operations on GPU arrays, built on tensor maps and the kernels of this package."""
