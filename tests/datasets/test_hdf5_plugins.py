"""HDF5 loads no code that the environment or a dataset names."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import processes
import pytest
from programs import required
from public_dataset import public_columns, write_public_dataset

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("g++") is None and not required("g++"), reason="no g++"),
]
FILTER = 4711
# A filter that passes bytes on, declared without HDF5's headers, in a library that leaves a file
# where it is loaded, as whatever kind of plug-in. That the filter ran is seen by another file.
SOURCE = """
#include <cstdio>
#include <cstdlib>
#include <cstddef>
__attribute__((constructor)) static void loaded() {
  if (FILE* file = fopen(getenv("PLANTED_LOADED"), "w")) fclose(file);
}
extern "C" {
typedef size_t (*Filter)(unsigned, size_t, const unsigned*, size_t, size_t*, void**);
struct Class {
  int version, id; unsigned encoder, decoder;
  const char* name; void* can_apply; void* set_local; Filter filter;
};
static size_t pass(unsigned, size_t, const unsigned*, size_t bytes, size_t*, void**) {
  return bytes;
}
static Class it = {1, 4711, 1, 1, "planted", 0, 0, pass};
int H5PLget_plugin_type(void) { return 0; }
const void* H5PLget_plugin_info(void) {
  if (FILE* ran = fopen(getenv("PLANTED_RAN"), "w")) fclose(ran);
  return &it;
}
}
"""
WRITE = """
import sys, h5py
with h5py.File(sys.argv[1], "a") as file:
    pixels = file["pixels"][:]
    del file["pixels"]
    file.create_dataset("pixels", data=pixels, chunks=(1, *pixels.shape[1:]), compression=4711)
"""
READ = """
import sys
from pathlib import Path
from acpc.datasets.hdf5 import Hdf5Dataset
with Hdf5Dataset.open(Path(sys.argv[1]) / sys.argv[2], sys.argv[2]) as dataset:
    print(dataset.pixel_column("pixels").read(0, 2).sum())
"""


@pytest.fixture
def planted(tmp_path: Path) -> dict[str, str]:
    """An environment that names a plug-in, and a dataset that asks for it."""
    (tmp_path / "plugin.cpp").write_text(SOURCE)
    library = tmp_path / "plugins/libplanted.so"
    library.parent.mkdir()
    processes.run(["g++", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "plugin.cpp")])
    # The server's reader turns plug-ins off for its process and all that it starts.
    inherited = {name: value for name, value in os.environ.items() if "HDF5_PLUGIN" not in name}
    return {
        **inherited,
        "HDF5_PLUGIN_PATH": str(library.parent),
        "PLANTED_RAN": str(tmp_path / "ran"),
        "PLANTED_LOADED": str(tmp_path / "loaded"),
    }


def test_a_dataset_cannot_have_a_plug_in_loaded(tmp_path: Path, planted: dict[str, str]) -> None:
    write_public_dataset(tmp_path / "a.h5", public_columns())
    processes.run([sys.executable, "-c", WRITE, str(tmp_path / "a.h5")], env=planted)
    ran = tmp_path / "ran"
    assert ran.exists(), "HDF5 itself loads it"
    ran.unlink()
    (tmp_path / "loaded").unlink()
    asked = [sys.executable, "-c", READ, str(tmp_path), "a.h5"]
    answer = processes.run(asked, env=planted, check=False)
    assert not ran.exists(), "nothing of the plug-in ran"
    assert not (tmp_path / "loaded").exists()
    assert f"needs HDF5 filter {FILTER}" in answer.stderr
    assert "FailedPrecondition" in answer.stderr


@pytest.mark.parametrize("named", [{}, {"HDF5_VOL_CONNECTOR": "any"}, {"HDF5_DRIVER": "any"}])
@pytest.mark.parametrize("before", ["", "import h5py; h5py.h5pl.append(b'{path}')\n"])
def test_no_connector_or_driver_is_looked_for(
    before: str, named: dict[str, str], tmp_path: Path, planted: dict[str, str]
) -> None:
    """HDF5 asks every connector on its path about a file that it cannot read."""
    (tmp_path / "a.h5").write_bytes(b"no dataset")
    loaded = tmp_path / "loaded"
    opened = f"import h5py; h5py.File({str(tmp_path / 'a.h5')!r})"
    processes.run([sys.executable, "-c", opened], env=planted, check=False)
    assert loaded.exists(), "HDF5 itself loads it"
    loaded.unlink()
    first = before.format(path=planted["HDF5_PLUGIN_PATH"])
    # Only what the reader does with a library that another module has imported is looked at there.
    given = {**planted, "HDF5_PLUGIN_PATH": ""} if before else {**planted, **named}
    asked = [sys.executable, "-c", first + READ, str(tmp_path), "a.h5"]
    answer = processes.run(asked, env=given, check=False)
    assert not loaded.exists()
    assert "is not a readable HDF5 file" in answer.stderr


def test_the_public_compressions_are_still_read(tmp_path: Path, planted: dict[str, str]) -> None:
    columns = public_columns()
    write_public_dataset(tmp_path / "a.h5", columns, compress=True)
    asked = [sys.executable, "-c", READ, str(tmp_path), "a.h5"]
    answer = processes.run(asked, env=planted)
    assert int(answer.stdout) == int(np.sum(columns.columns["pixels"][:2], dtype=np.int64))
