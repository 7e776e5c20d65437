"""From CUDA C++ to a running kernel: compilation with NVRTC, loading and launching through CuPy."""
