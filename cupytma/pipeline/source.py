"""The CUDA C++ of a pipeline kernel, written to be read."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from cupytma.limits import UNIT
from cupytma.pipeline.declarations import Accumulator, Declaration, Declared
from cupytma.pipeline.plan import OUTPUT_STAGES, Variant, Way

_CALL_WIDTH = 96

_KERNEL = """\
extern "C" __global__ void __launch_bounds__(consumer_threads + warp_threads, {blocks}) {name}(
{parameters})
{{
{setup}
{producer}
    const Group<consumer_threads> group;
{begin}    for (TileWalk<TileBox> tile(tiling); tile.more(); tile.next()) {{
{tile}
    }}
{end}}}
"""
_PRODUCER = """\
    if (threadIdx.x >= consumer_threads) {{  // the producer warp
        if (cupytma::elect_sync()) {{
{prefetches}
            Producer<stages> producer(barriers);
            for (TileWalk<TileBox> tile(tiling); tile.more(); tile.next()) {{
                Stage& stage = shared.stage[producer.begin(loaded_bytes)];
{loads}
                producer.end();
            }}
        }}
        return;
    }}
"""
_IDLE = """\
    if (threadIdx.x >= consumer_threads) {
        return;  // no tensor map takes any of the inputs, and the consumer loads them
    }
"""


def source_of(declaration: Declaration, variant: Variant) -> str:
    """The source of a kernel.

    Parameters
    ----------
    declaration : Declaration
    variant : Variant

    Returns
    -------
    str
        CUDA C++ with the kernel, and after it, where there are accumulators, one that combines what blocks have left.
    """
    return _Writer(declaration, variant).text()


class _Writer:
    def __init__(self, declaration: Declaration, variant: Variant) -> None:
        self.declaration = declaration
        self.variant = variant
        count = len(declaration.inputs)
        self.inputs = list(zip(declaration.inputs, variant.ways[:count], strict=True))
        self.outputs = list(zip(declaration.outputs, variant.ways[count:], strict=True))
        self.vector = UNIT // max(declared.type.itemsize for declared in declaration.arrays)
        self.coordinates = [word for word in ("at", "shape") if declaration.mentions(word)]

    def text(self) -> str:
        parts = [self._shared(), self._consume()]
        if self.declaration.accumulators:
            parts += [self._accumulators(), self._deliver()]
        parts.append(self._kernel())
        if self.declaration.accumulators:
            parts.append(self._combining_kernel())
        text = "\n".join(parts)
        return "\n".join([self._heading(), self._shape("consumer_warps" in text), text])

    # Declarations.

    def _heading(self) -> str:
        declaration = self.declaration
        lines = [f"// {declaration.name}, a pipeline: for each {declaration.each}, `consume`."]
        for title, entries in (
            ("inputs ", declaration.inputs), ("outputs", declaration.outputs), ("scalars", declaration.scalars)
        ):  # fmt: skip
            if entries:
                lines.append(f"//   {title}  {', '.join(map(str, entries))}")
        for found in declaration.accumulators:
            over = "each row" if declaration.over == "row" else "all elements"
            lines.append(f"//   reduced  {found.declared}: {found.combination.expression}, over {over}")
        lines += ["#include <cupytma/pipeline.cuh>", "", "using namespace cupytma::pipeline;", ""]
        if declaration.preamble:
            lines += [declaration.preamble, ""]
        return "\n".join(lines)

    def _shape(self, by_warps: bool) -> str:
        variant = self.variant
        lines = [
            f"constexpr int rank = {variant.rank};  // dimension 0 moves fastest",
            f"using TileBox = Box<{', '.join(map(str, variant.box))}>;",
            *([f"constexpr int stages = {variant.stages};"] if self._has_stages else []),
            *([f"constexpr int output_stages = {OUTPUT_STAGES};"] if self.outputs else []),
            f"constexpr unsigned consumer_threads = {variant.threads};",
            *(["constexpr unsigned consumer_warps = consumer_threads / warp_threads;"] if by_warps else []),
        ]
        if self.declaration.each == "element":
            lines.append(f"constexpr int vector = {self.vector};  // elements that a thread takes at once")
        return "\n".join(lines) + "\n"

    def _shared(self) -> str:
        rooms, fields = [], []
        stage = [declared for declared, way in self.inputs if way.mapped]
        if stage:
            rooms.append(_struct("Stage", map(_tile, stage)))
            fields.append("Stage stage[stages];")
        fields += [_tile(declared) for declared, way in self.inputs if not way.mapped]
        if self.outputs:
            rooms.append(_struct("Outputs", (_tile(declared) for declared, _ in self.outputs)))
            fields.append("Outputs outputs[output_stages];")
        rooms.append(_struct("Shared", fields))
        size = f'static_assert(sizeof(Shared) == {self.variant.shared_bytes}, "the launch has as much");\n'
        if stage:
            sizes = " + ".join(f"sizeof(Stage::{declared.name})" for declared in stage)
            size += f"constexpr unsigned loaded_bytes = {sizes};\n"
        if self.declaration.scalars:
            rooms.append(_struct("Scalars", (f"alignas(8) {_scalar(s)};" for s in self.declaration.scalars)))
        return "\n".join(rooms) + size

    def _consume(self) -> str:
        declaration = self.declaration
        if declaration.each == "element":
            parameters = [f"const {declared.type.value} {declared.name}" for declared in declaration.inputs]
            parameters += [f"{declared.type.value}& {declared.name}" for declared in declaration.outputs]
        else:
            parameters = [f"const {declared.type.stored}* {declared.name}" for declared in declaration.inputs]
            parameters += [f"{declared.type.stored}* {declared.name}" for declared in declaration.outputs]
            parameters += ["const int length"] if declaration.each == "row" else [
                "const int (&size)[rank]", "const int (&box)[rank]"
            ]  # fmt: skip
            parameters += [f"const Group<{self.variant.group}>& group", "const int thread", "const int threads"]
        parameters += [f"{found.type.value}& {found.name}" for found in declaration.accumulators]
        parameters += [f"const int (&{name})[rank]" for name in self.coordinates]
        parameters += [f"const {_scalar(scalar)}" for scalar in declaration.scalars]
        return _function("__forceinline__ void consume", parameters, declaration.consume)

    def _accumulators(self) -> str:
        found = self.declaration.accumulators
        fields = [f"{each.type.value} {each.name} = {each.combination.identity};" for each in found]
        lines = [
            "struct Combine {",
            "    __device__ Accumulators operator()(const Accumulators& one, const Accumulators& other) const",
            "    {", "        Accumulators both;",
        ]  # fmt: skip
        for each in found:
            lines += [
                "        {", f"            const {each.type.value} a = one.{each.name}, b = other.{each.name};",
                f"            both.{each.name} = {each.combination.expression};", "        }",
            ]  # fmt: skip
        lines += ["        return both;", "    }", "};", ""]
        return _struct("Accumulators", fields) + "\n" + "\n".join(lines)

    def _deliver(self) -> str:
        found = self.declaration.accumulators
        parameters = ["Accumulators& found", "const Tiling<rank>& tiling", "const int (&start)[rank]"]
        parameters += [f"const Strided<rank>& {each.name}_array" for each in found]
        parameters += [f"const {_scalar(scalar)}" for scalar in self.declaration.scalars]
        body = []
        if self.declaration.finish:
            body += [f"[[maybe_unused]] {each.type.value}& {each.name} = found.{each.name};" for each in found]
            body += self._coordinates("start", of_row=True)
            body += ["{", textwrap.indent(textwrap.dedent(self.declaration.finish), "    "), "}"]
        body += [f"{each.name}_array.element<{each.type.stored}>(start) = found.{each.name};" for each in found]
        return "// Writes one result.\n" + _function("void deliver", parameters, "\n".join(body))

    # The kernel.

    def _kernel(self) -> str:
        return _KERNEL.format(
            blocks=self.variant.blocks, name=self.declaration.name, parameters=",\n".join(self._parameters()),
            setup=self._setup(), producer=self._producer(), begin=self._begin(), tile=self._tile(), end=self._end(),
        )

    def _parameters(self) -> list[str]:
        lines = [f"const CUtensorMap {d.name}_map" for d, way in (*self.inputs, *self.outputs) if way.mapped]
        lines.append("const Tiling<rank> tiling")
        lines += [f"const Strided<rank> {d.name}_array" for d, way in (*self.inputs, *self.outputs) if way.ordinary]
        lines += [f"const Strided<rank> {found.name}_array" for found in self.declaration.accumulators]
        lines += ["const Scalars scalars"] if self.declaration.scalars else []
        lines = [line.replace("const ", "const __grid_constant__ ", 1) for line in lines]
        lines += ["Accumulators* partial"] if self.declaration.accumulators else []
        return [f"    {line}" for line in lines]

    def _setup(self) -> str:
        lines = ["    Shared& shared = shared_memory<Shared>();"]
        if self._has_stages:
            lines = [
                "    __shared__ RingBarriers<stages> barriers;", *lines, "    if (threadIdx.x == 0) {",
                "        barriers.init(consumer_warps);", "    }", "    __syncthreads();",
            ]  # fmt: skip
        return "\n".join(lines) + "\n"

    @property
    def _has_stages(self) -> bool:
        return any(way.mapped for _, way in self.inputs)

    def _producer(self) -> str:
        if not self._has_stages:
            return _IDLE
        loads = [
            f"load<TileBox, {way.inner}, {way.pack}>(stage.{d.name}, {d.name}_map, tile, producer.loaded());"
            for d, way in self.inputs
            if way.mapped
        ]
        maps = [d for d, way in (*self.inputs, *self.outputs) if way.mapped]
        prefetches = [f"cupytma::prefetch_tensormap(&{d.name}_map);" for d in maps]
        return _PRODUCER.format(prefetches=_indented(prefetches, 12), loads=_indented(loads, 16))

    def _begin(self) -> str:
        lines = []
        if self._has_stages:
            lines.append("Consumer<stages> consumer(barriers);")
        if self.outputs:
            lines.append("StoreRing<output_stages, consumer_threads> results;")
        if self.variant.by_row:
            lines += [
                "const Group<warp_threads> warp;",
                "constexpr int slots = (TileBox::rows + consumer_warps - 1) / consumer_warps;",
                "Accumulators found[slots];  // of the rows of a tile that the warp has",
            ]
        elif self.declaration.accumulators:
            lines.append("Accumulators found;  // by this thread")
        return _indented(lines, 4) + "\n" if lines else ""

    def _tile(self) -> str:
        lines = []
        if self._has_stages:
            lines.append("const Stage& stage = shared.stage[consumer.wait()];")
        copied = [d for d, way in self.inputs if not way.mapped]
        if copied:
            lines.append("group.sync();  // the tile before has been read")
            lines += [f"copy_in(shared.{d.name}, {d.name}_array, tile, group);" for d in copied]
            lines.append("group.sync();")
        if self.outputs:
            lines.append("Outputs& outputs = shared.outputs[results.stage()];")
        lines += {"element": self._elements, "row": self._rows, "tile": self._whole}[self.declaration.each]()
        if self._has_stages:
            lines.append("consumer.release();")
        if self.outputs:
            lines += self._stores()
        if self.variant.by_row:
            lines += self._row_results()
        return _indented(lines, 8)

    def _stores(self) -> list[str]:
        stores = [
            f"    store<TileBox, {way.inner}, {way.pack}>({d.name}_map, tile, outputs.{d.name});"
            for d, way in self.outputs
            if way.mapped
        ]
        lines = ["results.commit([&] {", *stores, "});"]
        return lines + [
            f"copy_out({d.name}_array, tile, outputs.{d.name}, group);" for d, way in self.outputs if way.ordinary
        ]

    def _place(self, declared: Declared, way: Way) -> str:
        """Where an input's tile lies."""
        return f"stage.{declared.name}" if way.mapped else f"shared.{declared.name}"

    def _coordinates(self, start: str, inner: str = "", of_row: bool = False) -> list[str]:
        """Coordinates and extents in array order, where the code asks for them."""
        rank, lines = self.variant.rank, []
        unused = "[[maybe_unused]] " if of_row else ""  # only the code for each element may ask
        for name in self.coordinates:
            of = start if name == "at" else "tiling.extent"
            entries = [f"{of}[{dimension}]" for dimension in reversed(range(rank))]
            if name == "at" and inner:
                entries[-1] += f" + {inner}"
            elif name == "at" and of_row:
                entries[-1] = "0"
            lines.append(f"{unused}const int {name}[rank] = {{{', '.join(entries)}}};")
        return lines

    def _elements(self) -> list[str]:
        accumulator = "found[slot]" if self.variant.by_row else "found"
        lines = ["const int count = whole ? vector : tile.count(element, vector);"]
        if "at" in self.coordinates:
            lines += ["int start[rank];", "tile.locate(element, start);"]
        for declared, way in self.inputs:
            lines.append(f"const auto {declared.name} = read<vector>({self._place(declared, way)} + element);")
        lines += [f"Vector<{d.type.stored}, vector> {d.name}{{}};" for d, _ in self.outputs]
        arguments = [f"{declared.name}.value[i]" for declared in self.declaration.inputs]
        narrow = [d for d in self.declaration.outputs if d.type.is_narrow]
        arguments += [f"{d.name}_value" if d in narrow else f"{d.name}.value[i]" for d in self.declaration.outputs]
        arguments += [f"{accumulator}.{found.name}" for found in self.declaration.accumulators]
        arguments += [*self.coordinates, *self._scalars()]
        inner = self._coordinates("start", "i")
        inner += [f"{d.type.value} {d.name}_value{{}};" for d in narrow]
        inner.append(f"consume({', '.join(arguments)});")
        inner += [f"{d.name}.value[i] = {d.name}_value;" for d in narrow]
        lines += ["#pragma unroll", "for (int i = 0; i < vector; ++i) {", "    if (i < count) {"]
        lines += [*(f"        {line}" for line in inner), "    }", "}"]
        lines += [f"write(outputs.{d.name} + element, {d.name});" for d in self.declaration.outputs]
        columns = 8 if self.variant.by_row else 4
        lines = [line if line.startswith("#") else " " * columns + line for line in lines]
        if not self.variant.by_row:
            return [
                "const bool whole = tile.is_whole();",
                "for (int element = group.thread * vector; element < TileBox::elements;",
                "     element += consumer_threads * vector) {", *lines, "}",
            ]  # fmt: skip
        return [
            "if (tile.begins_run()) {", "    for (Accumulators& each : found) {", "        each = Accumulators();",
            "    }", "}", "const bool whole = tile.is_whole();", "#pragma unroll",
            "for (int slot = 0; slot < slots; ++slot) {",
            "    const int row = threadIdx.x / warp_threads + slot * consumer_warps;",
            "    for (int column = warp.thread * vector; row < TileBox::rows && column < TileBox::inner;",
            "         column += warp_threads * vector) {",
            "        const int element = row * TileBox::inner + column;", *lines, "    }", "}",
        ]  # fmt: skip

    def _rows(self) -> list[str]:
        arguments = [f"{self._place(d, way)} + row * TileBox::inner" for d, way in self.inputs]
        arguments += [f"outputs.{d.name} + row * TileBox::inner" for d, _ in self.outputs]
        arguments.append("tiling.extent[0]")
        if self.variant.group == self.variant.threads:
            loop, together, named = "int row = 0; row < TileBox::rows; ++row", [], "group"
        else:
            loop = "int row = threadIdx.x / warp_threads; row < TileBox::rows; row += consumer_warps"
            together, named = ["const Group<warp_threads> warp;"], "warp"
        call = self._call([*arguments, named, f"{named}.thread", f"{named}.threads"])
        return [
            *together, f"for ({loop}) {{", "    int start[rank];",
            "    if (tile.locate(row * TileBox::inner, start)) {",
            *(f"        {line}" for line in [*self._coordinates("start"), *call]), "    }", "}",
        ]  # fmt: skip

    def _whole(self) -> list[str]:
        rank = self.variant.rank
        sizes = ", ".join(f"tile.size({dimension})" for dimension in reversed(range(rank)))
        box = ", ".join(map(str, reversed(self.variant.box)))
        arguments = [self._place(d, way) for d, way in self.inputs] + [f"outputs.{d.name}" for d, _ in self.outputs]
        arguments += ["size", "box", "group", "group.thread", "group.threads"]
        return [
            f"const int size[rank] = {{{sizes}}};", f"const int box[rank] = {{{box}}};",
            *self._coordinates("tile.start"), *self._call(arguments),
        ]  # fmt: skip

    def _call(self, arguments: Sequence[str]) -> list[str]:
        accumulators = [f"found.{found.name}" for found in self.declaration.accumulators]
        rest = [*accumulators, *self.coordinates, *self._scalars()]
        call = f"consume({', '.join([*arguments, *rest])});"
        return textwrap.wrap(call, _CALL_WIDTH, subsequent_indent="    ", break_long_words=False)

    def _scalars(self) -> list[str]:
        return [f"scalars.{scalar.name}" for scalar in self.declaration.scalars]

    def _delivered(self, found: str, start: str) -> str:
        arrays = [f"{each.name}_array" for each in self.declaration.accumulators]
        return f"deliver({', '.join([found, 'tiling', start, *arrays, *self._scalars()])});"

    def _row_results(self) -> list[str]:
        return [
            "if (tile.ends_run()) {", "#pragma unroll", "    for (int slot = 0; slot < slots; ++slot) {",
            "        const int row = threadIdx.x / warp_threads + slot * consumer_warps;",
            "        Accumulators combined = warp.reduce(found[slot], Combine());", "        int start[rank];",
            "        if (warp.thread == 0 && row < TileBox::rows && tile.locate(row * TileBox::inner, start)) {",
            "            if (tiling.parts == 1) {", f"                {self._delivered('combined', 'start')}",
            "            } else {",
            "                partial[tile.part() * row_count(tiling) + row_number(tiling, start)] = combined;",
            "            }", "        }", "    }", "}",
        ]  # fmt: skip

    def _end(self) -> str:
        lines = ["results.finish();"] if self.outputs else []
        if self.declaration.accumulators and not self.variant.by_row:
            lines += [
                "found = group.reduce(found, Combine());", "if (group.thread == 0) {", "    if (gridDim.x == 1) {",
                "        const int start[rank] = {};", f"        {self._delivered('found', 'start')}", "    } else {",
                "        partial[blockIdx.x] = found;", "    }", "}",
            ]  # fmt: skip
        return _indented(lines, 4) + "\n" if lines else ""

    def _combining_kernel(self) -> str:
        parameters = ["const Tiling<rank> tiling"]
        parameters += [f"const Strided<rank> {found.name}_array" for found in self.declaration.accumulators]
        parameters += ["const Scalars scalars"] if self.declaration.scalars else []
        parameters = [line.replace("const ", "const __grid_constant__ ", 1) for line in parameters]
        parameters += ["const Accumulators* partial", "const unsigned parts", "const unsigned long long rows"]
        lines = [
            "const Group<warp_threads> warp;",
            "const unsigned long long first = blockIdx.x * consumer_warps + threadIdx.x / warp_threads;",
            "for (unsigned long long row = first; row < rows; row += gridDim.x * consumer_warps) {",
            "    Accumulators combined;",
            "    for (unsigned part = warp.thread; part < parts; part += warp_threads) {",
            "        combined = Combine()(combined, partial[part * rows + row]);", "    }",
            "    combined = warp.reduce(combined, Combine());",
            "    if (warp.thread == 0) {", "        int start[rank];",
            "        locate_row(tiling, row, start);", f"        {self._delivered('combined', 'start')}", "    }", "}",
        ]  # fmt: skip
        head = f'extern "C" __global__ void __launch_bounds__(consumer_threads) {self.declaration.name}_combine('
        comment = "// Combines what several blocks have found: a warp for each result.\n"
        return f"{comment}{head}\n{_listed(parameters)})\n{{\n{_indented(lines, 4)}\n}}\n"


def _tile(declared: Declared) -> str:
    return f"alignas(tile_alignment) {declared.type.stored} {declared.name}[TileBox::elements];"


def _scalar(declared: Declared) -> str:
    return f"{declared.type.value} {declared.name}"


def _struct(name: str, fields: Iterable[str]) -> str:
    return "\n".join([f"struct {name} {{", *(f"    {field}" for field in fields), "};", ""])


def _listed(parameters: Sequence[str]) -> str:
    return ",\n".join(f"    {parameter}" for parameter in parameters)


def _function(head: str, parameters: Sequence[str], body: str) -> str:
    text = textwrap.indent(textwrap.dedent(body), "    ")
    return f"__device__ {head}(\n{_listed(parameters)})\n{{\n{text}\n}}\n"


def _indented(lines: Sequence[str], columns: int) -> str:
    return "\n".join(line if line.startswith("#") else " " * columns + line for line in lines)


def partial_bytes(accumulators: Sequence[Accumulator]) -> int:
    """Size of one block's or run's accumulators in memory, as C++ lays the struct out, in bytes."""
    size, widest = 0, 1
    for found in accumulators:
        itemsize = 4 if found.type.is_narrow else found.type.itemsize
        size, widest = -(-size // itemsize) * itemsize + itemsize, max(widest, itemsize)
    return -(-size // widest) * widest
