"""An entry of multidatabackend.json lacks what its kind of storage cannot do without."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.diffusion.sets import DataSet, lists
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "huggingface": ("dataset_name",),
    "csv": ("csv_file", "csv_cache_dir", "csv_caption_column", "csv_url_column"),
    "aws": (
        *("aws_bucket_name", "aws_region_name", "aws_endpoint_url", "aws_access_key_id"),
        "aws_secret_access_key",
    ),
}
"""simpletuner 3.1.6 and 4.10.1 factory.py `check_huggingface_config`, `check_csv_config`,
`check_aws_config`: Missing required key."""
_FOLDERS: Final = ("instance_data_dir", "instance_data_root")
_IN_FOLDERS: Final = ("image", "video", "conditioning", "eval")
_ALIGNED: Final = ("reference_strict", "mask")


def _check(run: Run) -> Iterator[Finding]:
    for _, sets in lists(run):
        paired = {name for each in sets for name in _names(each.value("conditioning_data"))}
        for each in sets:
            yield from _of_storage(each)
            yield from _of_tables(each)
            yield from _of_pairs(each, paired)


def _names(value: object) -> list[str]:
    found = value if isinstance(value, list) else [value]
    return [each for each in found if isinstance(each, str)]


def _of_storage(each: DataSet) -> Iterator[Finding]:
    at = each.place("type")
    if at is None or not isinstance(at.value, str):
        return
    if each.kind in (*_IN_FOLDERS, "audio", "caption"):
        for key in _NEEDS.get(at.value, ()):
            if each.place(key) is None:
                yield _lacking(at, key)
    folder = any(each.value(key) for key in _FOLDERS)
    if at.value == "local" and each.kind in _IN_FOLDERS and not folder and not _is_made(each):
        yield _lacking(at, "instance_data_dir")


def _is_made(each: DataSet) -> bool:
    """Whether its pictures are written by SimpleTuner itself."""
    return any(each.place(key) for key in ("conditioning_config", "source_dataset_id", "disabled"))


def _lacking(at: Place, key: str) -> Finding:
    return Finding(
        f"a data set of type {at.value} has no {key}",
        (at.label("of this storage"),),
        (),
        f"write {key}",
    )


def _of_tables(each: DataSet) -> Iterator[Finding]:
    at = each.place("metadata_backend")
    if at is not None and at.value == "parquet" and not each.value("parquet"):
        yield Finding(
            "metadata_backend parquet without a parquet block",
            (at.label("refused alone"),),
            ("the block names the file, and its columns of names, captions and sizes",),
            "write parquet: {path, filename_column, caption_column, width_column, height_column}",
        )


def _of_pairs(each: DataSet, paired: set[str]) -> Iterator[Finding]:
    at, source = each.place("conditioning_type"), each.value("source_dataset_id")
    if at is None or at.value not in _ALIGNED:
        return
    if each.kind != "conditioning":
        yield Finding(
            f"conditioning_type {at.value} in a data set of dataset_type {each.kind}",
            (at.label("not of this kind"),),
            ("pictures are trained on unless dataset_type says conditioning",),
            "write dataset_type: conditioning",
        )
    elif source is None and str(each.value("id")) not in paired:
        yield Finding(
            f"conditioning_type {at.value} without the data set that it belongs to",
            (at.label("aligned with nothing"),),
            ("its pictures are matched one by one with those of the other data set",),
            "name it in conditioning_data of that data set, or write source_dataset_id",
        )


RULE = Rule(
    name="data-set-incomplete",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/data_backend/factory.py: A local backend "
            "requires instance_data_dir; Parquet metadata backend requires a 'parquet' field; "
            "Missing required key; Could not find source dataset for strict conditioning "
            "alignment; `_connect_conditioning_datasets`: dataset_type conditioning alone"
        ),
        "bghira/SimpleTuner#1711",
    ),
    check=_check,
)
