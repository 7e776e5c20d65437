"""Pipeline kernels: made of a consumer's code and of what it declares, called with arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from cupytma.errors import ArrayError, PipelineError
from cupytma.limits import MAX_BLOCK_THREADS, MULTIPROCESSOR_THREADS, UNIT, WARP_THREADS
from cupytma.pipeline.declarations import Declaration, Declared, parse_declaration, scalar_bits
from cupytma.pipeline.layout import broadcast_shape, check_arrays, result_shape
from cupytma.pipeline.plan import MAX_STAGES, Options, PipelinePlan, plan_pipeline
from cupytma.pipeline.source import source_of
from cupytma.runtime.compiler import compile
from cupytma.runtime.given import shown, whole, wholes
from cupytma.runtime.module import Module
from cupytma.targets import DEFAULT_TARGET, Target
from cupytma.targets import target as target_of
from cupytma.tensormap.arrays import ArrayView, view_of
from cupytma.words import counted

if TYPE_CHECKING:
    from cupytma.pipeline.launch import Memory
    from cupytma.sim.program import Program

_SOMEWHERE = 1 << 40
_SIDE = 4096


class PipelineKernel:
    """A kernel that loads tiles of its inputs ahead, runs a few lines of C++ on them, and stores what they make.

    Made by `pipeline_kernel`. The source depends on the rank and the layout of the arrays, on little else, and is
    compiled when arrays of a new kind are first given. May be used by several threads at once.

    Attributes
    ----------
    declaration : Declaration
    options : Options
    """

    def __init__(self, declaration: Declaration, options: Options, compile_options: tuple[str, ...]) -> None:
        self.declaration = declaration
        self.options = options
        self._compile_options = compile_options

    def __call__(self, /, *arrays: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """Run the kernel on the current stream; returns at once.

        Parameters
        ----------
        *arrays : array
            The inputs, in the order of their declaration: CuPy's, torch's, or anything with
            ``__cuda_array_interface__``, of any strides. They are broadcast to one shape, as numpy does it.
        out : array, or a sequence or mapping of them, optional
            The results: outputs, then what `reduce` declares. An output may be the very same array as an input.
            Default: new ones, of torch where an input is torch's, else of CuPy.
        stream : stream, optional
            Default: torch's current stream if an input is torch's, else CuPy's.
        **named
            The scalars, by name; inputs may be given by name too.

        Returns
        -------
        array or tuple of array
            The results.

        Raises
        ------
        NoDeviceError
            Without a GPU that has a Tensor Memory Accelerator.
        ArrayError
            If arrays are in host memory or on different devices, their shapes or dtypes do not fit, or memory overlaps.
        PipelineError
            If an array or scalar is missing, or is none of the declaration's.
        """
        from cupytma.pipeline.launch import run

        inputs, scalars = self._sorted(arrays, named)
        bits = tuple(scalar_bits(declared, scalars[declared.name]) for declared in self.declaration.scalars)
        return run(self, inputs, self._results(out), bits, stream)

    def plan(self, *arrays: Any, out: Any = None, target: str | Target = DEFAULT_TARGET) -> PipelinePlan:
        """How the kernel works on given arrays: tiles, stages, bytes, and the rule that keeps one from tensor maps.

        Needs no GPU, moves nothing, and takes arrays in host memory too.

        Parameters
        ----------
        *arrays, out
            As for a call. Without `out`, for new results.
        target : str or Target

        Raises
        ------
        ArrayError, PipelineError
            As for a call.
        """
        inputs = [view_of(array) for array in self._sorted(arrays, {}, with_scalars=False)[0]]
        given = self._results(out)
        results = [view_of(array) for array in given] if given is not None else self._dense(inputs)
        return self.plan_views(inputs, results, target_of(target))

    def compile(self, *arrays: Any, out: Any = None, target: str | Target = DEFAULT_TARGET) -> Module:
        """The compiled kernel for given arrays; as `plan`.

        Raises
        ------
        CompileError
            If the consumer's code is not C++; it shows the line in the kernel's source.
        """
        return self.module(self.plan(*arrays, out=out, target=target), target_of(target))

    @property
    def source(self) -> str:
        """The CUDA C++ for C-contiguous arrays of 4096 × 4096 elements; `source_for` has it for others.

        Where a box is given, for arrays of some such boxes.
        """
        box = self.options.box
        shape = (_SIDE, _SIDE) if box is None else (*(4 * extent for extent in box[:-1]), box[-1])
        views = [_dense_view(entry, shape, number) for number, entry in enumerate(self.declaration.inputs)]
        return source_of(self.declaration, self.plan(*views).variant)

    def source_for(self, *arrays: Any, out: Any = None, target: str | Target = DEFAULT_TARGET) -> str:
        """The CUDA C++ for given arrays; as `plan`."""
        return source_of(self.declaration, self.plan(*arrays, out=out, target=target).variant)

    def program(
        self, /, *arrays: Any, reference: Callable[..., Any], out: Any = None, blocks: int = 2, **scalars: Any
    ) -> Program:
        """The kernel's schedule for numpy arrays, as a program that the simulator runs under many schedules.

        The same tiles in the same order through the same stages, with the same barriers; what the consumer does with a
        tile is done by a function.

        Parameters
        ----------
        *arrays : numpy.ndarray
            As for a call.
        reference : callable
            Takes the inputs' tiles as numpy arrays and the scalars, in the order of their declaration, and returns the
            outputs' tiles, then for each accumulator the values that it combines: one for each element. With
            ``each="row"`` tiles are arrays of whole rows.
        out : numpy.ndarray, or a sequence or mapping of them, optional
            The program begins with a copy of their memory. Default: zeros.
        blocks : int
            Of the grid; no more than there are runs of tiles are used.
        **scalars

        Returns
        -------
        Program
            Its arrays have the names of the kernel's, and are the bytes from the first to the last of each.

        Raises
        ------
        ArrayError, PipelineError
            As for a call; or if an accumulator is combined by an expression, which has no equal in numpy.
        ProgramError
            For numbers of blocks that make no launch.
        """
        from cupytma.pipeline.program import pipeline_program

        inputs, values = self._sorted(arrays, scalars)
        return pipeline_program(self, inputs, self._results(out), values, reference, blocks)

    # What the launch and the program need.

    def plan_views(self, inputs: Sequence[ArrayView], results: Sequence[ArrayView], target: Target) -> PipelinePlan:
        """The plan for arrays that are known by their views."""
        check_arrays(self.declaration, inputs, results)
        if not prod(broadcast_shape(self.declaration.inputs, inputs)):
            raise ArrayError("the arrays are empty, and nothing is launched for them")
        return plan_pipeline(self.declaration, inputs, results, self.options, target)

    def module(self, plan: PipelinePlan, target: Target) -> Module:
        """The compiled kernel of a plan."""
        return compile(source_of(self.declaration, plan.variant), target, options=self._compile_options)

    @cached_property
    def prepared(self) -> Memory:
        """Launches by the arrays' views."""
        from cupytma.pipeline.launch import Memory

        return Memory()

    @cached_property
    def quick(self) -> Memory:
        """Launches by what arrays of known types say of themselves."""
        from cupytma.pipeline.launch import Memory

        return Memory()

    def _sorted(
        self, arrays: tuple[Any, ...], named: dict[str, Any], with_scalars: bool = True
    ) -> tuple[list[Any], dict[str, Any]]:
        """Inputs and scalars, each where the declaration has it."""
        declared = self.declaration
        names = [entry.name for entry in declared.inputs]
        if len(arrays) > len(names):
            raise PipelineError(
                f"{declared.name} takes {counted(len(names), 'array')} ({', '.join(names)}), not {len(arrays)}"
            )
        given = dict(zip(names, arrays, strict=False))
        scalars: dict[str, Any] = {}
        for name, value in named.items():
            if name in given:
                raise PipelineError(f"{declared.name} was given {name} twice")
            if name in names:
                given[name] = value
            elif name in [entry.name for entry in declared.scalars]:
                scalars[name] = value
            else:
                raise PipelineError(f"{declared.name} has no {shown(name)}; it takes {self._signature()}")
        wanted = [*names, *(entry.name for entry in declared.scalars if with_scalars)]
        missing = [name for name in wanted if name not in given and name not in scalars]
        if missing:
            raise PipelineError(f"{declared.name} lacks {', '.join(missing)}; it takes {self._signature()}")
        return [given[name] for name in names], scalars

    def _results(self, out: Any) -> list[Any] | None:
        names = [declared.name for declared in self.declaration.results]
        if out is None:
            return None
        if isinstance(out, Mapping):
            if set(out) != set(names):
                raise PipelineError(f"out = {shown(list(out))}: the results are {', '.join(names)}")
            return [out[name] for name in names]
        found = list(out) if isinstance(out, (tuple, list)) else [out]
        if len(found) != len(names):
            raise PipelineError(f"out has {counted(len(found), 'array')}; the results are {', '.join(names)}")
        return found

    def _dense(self, inputs: Sequence[ArrayView]) -> list[ArrayView]:
        """Views of new results, which lie somewhere else."""
        shape = broadcast_shape(self.declaration.inputs, inputs)
        return [
            _dense_view(declared, result_shape(self.declaration, shape, position), 64 + position)
            for position, declared in enumerate(self.declaration.results)
        ]

    def _signature(self) -> str:
        return ", ".join(map(str, (*self.declaration.inputs, *self.declaration.scalars)))

    def __repr__(self) -> str:
        results = ", ".join(map(str, self.declaration.results))
        return f"<PipelineKernel {self.declaration.name}({self._signature()}) -> {results}>"


def _dense_view(declared: Declared, shape: tuple[int, ...], number: int) -> ArrayView:
    size = declared.type.itemsize
    strides = tuple(size * prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return ArrayView(_SOMEWHERE * (number + 1), shape, strides, declared.type.name, size, None)


def pipeline_kernel(
    consume: str,
    inputs: str | Iterable[str],
    outputs: str | Iterable[str] = (),
    *,
    scalars: str | Iterable[str] = (),
    reduce: Mapping[str, Any] | None = None,
    over: str = "row",
    each: str = "element",
    finish: str = "",
    preamble: str = "",
    box: Sequence[int] | None = None,
    stages: int | None = None,
    threads: int = 256,
    blocks: int = 2,
    tile_bytes: int = 8192,
    name: str = "pipeline",
    options: Iterable[str] = (),
) -> PipelineKernel:
    """Make a kernel of a few lines of C++ that say what is done with each element, row or tile.

    One warp of each block loads tiles of the inputs ahead into a ring of stages, by tensor loads; the others run
    `consume` on them, and tensor stores write the outputs meanwhile. Barriers, phases and byte counts are made with the
    kernel. Arrays that no tensor map takes (an address or stride that is no multiple of 16 bytes, elements that do not
    lie together) go through the same kernel by ordinary loads and stores; `PipelineKernel.plan` says which, and why.
    Nothing outside the results is written.

    Parameters
    ----------
    consume : str
        C++. For each element (`each`), inputs and outputs are variables by their names: ``"out = scale * a + b"``.
        Floating-point types of 16 and 8 bits are ``float`` there, and rounded when they are stored. Code that says
        ``at`` or ``shape`` gets the element's coordinates and the arrays' extents, array order: ``at[0]`` is the row
        of a matrix.
    inputs, outputs : list of str
        A dtype and a name each, such as ``["float32 a", "float16 b"]``; or one text with commas. Inputs are broadcast
        to one shape, which the outputs have.
    scalars : list of str, optional
        Numbers that a call gives by name.
    reduce : mapping of str, optional
        Accumulators and how two become one: ``{"float32 total": "add"}``; ``"add"``, ``"mul"``, ``"min"``, ``"max"``,
        ``"and"``, ``"or"``, ``"xor"``, or a pair of C++ expressions, the combination of ``a`` and ``b`` and the value
        to begin with. `consume` changes them: ``"total += a * b"``, ``"top = max(top, a)"``. Each is a result. They are
        combined in an order that depends on the arrays' layout and the device alone.
    over : str
        ``"row"``: one result for each row, of shape ``shape[:-1]``. ``"all"``: one in all, of shape ``()``.
    each : str
        ``"element"``; ``"row"``: `consume` runs for each row, in several threads, with pointers to its elements in
        shared memory, ``length``, ``thread`` of ``threads``, and ``group`` with ``group.sum(x)``, ``group.max(x)``,
        ``group.min(x)`` and ``group.sync()``; ``"tile"``: for each tile, in all threads, with pointers to tiles of
        ``box`` elements, of which ``size`` are the arrays' (array order), and ``group``.
    finish : str
        C++ that is run once for each result of `reduce`, before it is written: ``"total = sqrt(total)"``.
    preamble : str
        C++ before the kernel: functions that the code calls, or headers.
    box : sequence of int, optional
        Elements of a tile, array order. Default: about `tile_bytes`, by the arrays.
    stages : int, optional
        Tiles of each input in flight in a block, 1 to 64. Default: as many as the shared memory has room for, up to 8.
    threads : int
        Of the consumer, whole warps, 32 to 992; one more warp loads.
    blocks : int
        Of one multiprocessor.
    tile_bytes : int
        Of the array with the largest elements.
    name : str
        Of the kernel.
    options : iterable of str, optional
        Of the compiler, such as ``"-fmad=false"``.

    Returns
    -------
    PipelineKernel
        Call it with arrays.

    Raises
    ------
    PipelineError
        Naming what is wrong with the declaration. What is wrong with the code, the first call says.

    Examples
    --------
    >>> scale_add = pipeline_kernel("out = scale * a + b", ["float32 a", "float32 b"], ["float32 out"],
    ...                             scalars=["float32 scale"], name="scale_add")
    >>> scale_add
    <PipelineKernel scale_add(float32 a, float32 b, float32 scale) -> float32 out>
    >>> import numpy as np
    >>> x = np.zeros((100, 1000), np.float32)
    >>> print(scale_add.plan(x, x))
    scale_add: 49 tiles of (2048,) elements, 5 stages of 16384 B, 98304 B of shared memory in a block
      float32 a: tensor loads
      float32 b: tensor loads
      float32 out: tensor stores
    >>> row_sum = pipeline_kernel("total += x", ["float32 x"], reduce={"float32 total": "add"})
    >>> row_sum.plan(x).rows
    100
    """
    declaration = parse_declaration(consume, inputs, outputs, scalars, reduce, over, each, finish, preamble, name)
    chosen = Options(
        _box(box), None if stages is None else _number("stages", stages, 1, MAX_STAGES),
        _number("threads", threads, WARP_THREADS, MAX_BLOCK_THREADS - WARP_THREADS), _number("blocks", blocks, 1, 32),
        _number("tile_bytes", tile_bytes, UNIT, 1 << 17),
    )  # fmt: skip
    if chosen.threads % WARP_THREADS:
        raise PipelineError(f"threads = {chosen.threads}: whole warps are needed, a multiple of {WARP_THREADS}")
    if chosen.blocks * (chosen.threads + WARP_THREADS) > MULTIPROCESSOR_THREADS:
        raise PipelineError(
            f"blocks = {chosen.blocks} of {chosen.threads} + {WARP_THREADS} threads are more than the "
            f"{MULTIPROCESSOR_THREADS} threads that any multiprocessor runs at once; give fewer of either"
        )
    if isinstance(options, str):
        options = (options,)
    try:
        flags = tuple(options)
    except TypeError:
        raise PipelineError(f"options = {shown(options)}: a list of text is needed") from None
    return PipelineKernel(declaration, chosen, flags)


def _number(what: str, value: Any, low: int, high: int) -> int:
    try:
        number = whole(value)
    except TypeError:
        number = low - 1
    if not low <= number <= high or isinstance(value, bool):
        raise PipelineError(f"{what} = {shown(value)}: a whole number from {low} to {high} is needed")
    return number


def _box(box: Any) -> tuple[int, ...] | None:
    if box is None:
        return None
    try:
        found = wholes(box)
    except TypeError:
        found = ()
    if not found or min(found) < 1:
        raise PipelineError(f"box = {shown(box)}: positive whole numbers are needed, one for each dimension")
    return found


