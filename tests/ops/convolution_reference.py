"""What im2col and col2im must give, in plain numpy: windows of a padded array, taken and added one by one."""

from __future__ import annotations

import numpy as np


def windows(padded: np.ndarray, kernel, stride, dilation):
    """Each tap's pixels of all windows as a slice of the padded input, taps with the last dimension fastest."""
    outputs = [
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(padded.shape[1:-1], kernel, stride, dilation, strict=True)
    ]
    for tap in np.ndindex(*kernel):
        steps = zip(tap, dilation, outputs, stride, strict=True)
        cut = [slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in steps]
        yield (slice(None), *cut, slice(None))


def columns_of(x: np.ndarray, kernel, stride, padding, dilation) -> np.ndarray:
    padded = np.pad(x, [(0, 0), *padding, (0, 0)])
    taps = [padded[window].reshape(-1, x.shape[-1]) for window in windows(padded, kernel, stride, dilation)]
    return np.concatenate(taps, axis=1)


def folded(columns: np.ndarray, shape, kernel, stride, padding, dilation) -> np.ndarray:
    total = np.pad(np.zeros(shape, columns.dtype), [(0, 0), *padding, (0, 0)])
    for i, window in enumerate(windows(total, kernel, stride, dilation)):
        part = columns[:, i * shape[-1] : (i + 1) * shape[-1]]
        total[window] += part.reshape(total[window].shape)
    inside = [slice(before, before + n) for (before, _), n in zip(padding, shape[1:-1], strict=True)]
    return total[(slice(None), *inside, slice(None))]
