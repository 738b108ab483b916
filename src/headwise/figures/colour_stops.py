"""The colours of every colour map, as 65 stops between which a browser interpolates linearly.

The table was sampled from matplotlib's maps (at 0, 1/64, ..., 1), so that the JSON of a figure can carry its colours
without a drawing library being loaded: matplotlib takes a second, and the reading half never needs it. A test compares the
table with matplotlib. Between two stops no channel is further than 4 of 255 from matplotlib's own 256 steps.
"""

from __future__ import annotations

STOPS = 65


def stops_of(colours: str) -> tuple[str, ...]:
    """The stops of a colour map, from its low end to its high end.

    >>> stops_of("viridis")[0], stops_of("viridis")[-1], len(stops_of("viridis"))
    ('#440154', '#fde725', 65)
    """
    packed = _TABLE[colours]
    return tuple(f"#{packed[start : start + 6]}" for start in range(0, len(packed), 6))


_TABLE = {
    "viridis": (
        "44015446075a470d6047136548186a481d6f482374482878472d7b46327e453781443b844240864045883e49893d4e8a3b528b"
        "39568c375b8d355f8d33638d31678e2f6b8e2e6f8e2c728e2a768e297a8e277e8e26828e25858e23898e228d8d21918c1f948c"
        "1f988b1e9c891fa08820a38622a78525ab8228ae802db27d32b67a38b9773fbc7346c06f4ec36b56c6675ec96267cc5c70cf57"
        "7ad15184d44b8ed64598d83ea2da37addc30b8de29c2df23cde11dd8e219e2e418ece51bf6e620fde725"
    ),
    "cividis": (
        "00224e00255400285b002b62002e6a0030700533711235701a386f213b6e273e6e2d416d32436d36466c3b496c3f4c6c434e6c"
        "47516c4b546c4f576c535a6d565c6d5a5f6e5e626e61656f656870686a716c6d726f70737273747676767979777d7c78807f78"
        "8482798885788c8878908b78938e789791779b94769f9775a39a74a79d73aba072afa471b4a76fb8aa6ebcae6cc0b16ac4b468"
        "c8b866cdbb63d1bf61d5c25edac65bdec958e2cd54e7d150ebd44bf0d846f5dc41f9e03afee434fee838"
    ),
    "magma": (
        "00000402010903031206051a0a08220e0b2b130d34180f3d1d114722115029115a2f116336106b3d0f71440f764a107951127c"
        "57157e5d177f641a806a1c81701f817621817c2382832681892881902a81962c809c2e7fa3307eaa337db0357bb73779bd3977"
        "c43c75ca3e72d0416fd6456cdc4869e24d66e75263eb5760ef5d5ef2645cf56b5cf7725cf9795dfa815ffc8961fc9065fd9869"
        "fe9f6dfea772feae77feb67cfebd82fec488fecc8ffed395fdda9cfde2a3fde9aafcf0b2fcf7b9fcfdbf"
    ),
    "Blues": (
        "f7fbfff4f9fef1f7fdeef5fceaf3fbe7f1fae4eff9e1edf8deebf7dbe9f6d8e7f5d5e5f4d2e3f3cfe1f2ccdff1c9ddf0c6dbef"
        "c1d9edbcd7ebb7d4eab2d2e8add0e6a8cee4a3cce39dcae197c6df91c3de8abfdd84bcdb7db8da77b5d971b1d76aaed665aad4"
        "60a7d25ba3d056a0ce519ccc4b98ca4695c84191c63d8dc43989c13585bf3181bd2d7dbb2979b92474b72070b41d6cb11a68ae"
        "1764ab1460a8115ca50e58a20a549e08509b084c9508488e084488084082083b7c08377608337008306b"
    ),
    "Greys": (
        "fffffffdfdfdfbfbfbf9f9f9f7f7f7f6f6f6f4f4f4f2f2f2f0f0f0edededeaeaeae7e7e7e4e4e4e1e1e1dfdfdfdcdcdcd9d9d9"
        "d5d5d5d2d2d2cecececbcbcbc7c7c7c4c4c4c0c0c0bdbdbdb8b8b8b3b3b3aeaeaea9a9a9a4a4a49f9f9f9a9a9a959595919191"
        "8d8d8d8888888484847f7f7f7b7b7b7777777272726e6e6e6a6a6a6666666262625e5e5e5a5a5a5555555151514b4b4b464646"
        "4040403a3a3a3535352f2f2f2929292424241f1f1f1b1b1b1616161111110d0d0d080808030303000000"
    ),
    "RdBu_r": (
        "05306109386d0e41791249841752901b5a9c1f63a8246aae2a71b22f79b53480b93a87bd3f8ec04695c4529dc85fa5cd6bacd1"
        "78b4d584bcd990c4dd9bc9e0a5cee3aed3e6b8d8e9c2ddeccce2efd4e6f1dae9f2e0ecf3e6eff4ecf2f5f2f5f6f7f6f6f8f2ef"
        "f9eee7fae9dffbe5d8fce0d0fddcc9fcd5bffbccb4f9c4a9f8bb9ef6b394f5aa89f2a17fee9677e98b6ee48066df765edb6b55"
        "d6604dd05548cb4942c53e3dbf3338ba2832b41c2dab162a9f1228930e26870a247c072270032067001f"
    ),
    "PuOr_r": (
        "2d004b330655390c5e3f12684518714c1f7b522584582e8c5f3a916646976d529c745ea27b6aa88275ad8a7eb39287b99990bf"
        "a198c5a9a1cbb1aad1b7b1d5bdb9d9c3c0ddc9c8e1cfcfe5d5d6e9dadcecdfe1eee4e5f0e9eaf2eeeef3f3f3f5f7f7f6f8f3ec"
        "f9efe1faecd7fce8cdfde5c3fee1b9fedbacfed59ffecf92fdc885fdc278fdbc6bfbb55ef7ac52f2a446ee9b39e9932de58a20"
        "e08214d97b12d27510cb6e0dc4680bbd6109b65a07ae5506a651079e4c079548078d4307853e087f3b08"
    ),
    "BrBG": (
        "5430055d3506663a076e4007774508804a09894f0a91560d995d13a16518a96c1eb17423b97b29c08430c58e3dca9849cfa256"
        "d4ac62d9b76fdec17be2c787e6cd92e9d39dedd9a8f1dfb3f4e5bef6e9c7f6ebcff6edd7f5efdef5f1e6f5f3eef4f5f5edf3f2"
        "e6f1f0def0edd7eeebd0ece8c9eae6bfe7e1b4e2dba8ddd59dd9d092d4ca87d0c57ccabe70c1b664b9ae58b0a74da89f419f97"
        "35978f2d8f872588801d80781478700c7169046961016259015b5201554b004e4400483d004135003c30"
    ),
}
