"""What the Python package declares is what the C interface has promised.

    python_test.py PROMISED

with PYTHONPATH and CISTERN_LIBRARY.
"""

import ctypes
import re
import sys

from cistern import _abi

with open(sys.argv[1], encoding="utf-8") as file:
    promised = file.read().splitlines()
wrong = []


def snake(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


kinds = [kind for kind in vars(_abi).values()
         if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind is not ctypes.Structure]
assert len(kinds) > 10
for kind in kinds:
    name = f"cistern_{snake(kind.__name__)}"
    lines = {f"struct {name} bytes={ctypes.sizeof(kind)} align={ctypes.alignment(kind)}"}
    for member, *_ in kind._fields_:
        place = getattr(kind, member)
        lines.add(f"struct {name} .{member} at={place.offset} bytes={place.size}")
    wrong += sorted(lines ^ {line for line in promised if line.startswith(f"struct {name} ")})
for name, packed in (("put_item", _abi.PUT_ITEM), ("get_item", _abi.GET_ITEM), ("chunk_result", _abi.RESULT)):
    if f"struct cistern_{name} bytes={packed.size} align=8" not in promised:
        wrong.append(f"{name} is packed into {packed.size} bytes")
for line in promised:
    if line.startswith("function "):
        arguments = line[line.index("(") + 1:-1]
        name = line.split("(")[0].split()[-1].removeprefix("cistern_")
        count = 0 if arguments == "void" else arguments.count(",") + 1
        if name in _abi._FUNCTIONS and len(_abi._FUNCTIONS[name]) != count:
            wrong.append(f"{name} takes {count} arguments")
if wrong:
    sys.exit("the Python package and the C interface differ:\n  " + "\n  ".join(wrong))
