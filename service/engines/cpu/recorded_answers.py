"""The reference's answers to the self-test's texts, for the built-in vocabularies.

The reference in plain Python takes more than half of the time of loading a small vocabulary, and
its answers are the same at every start. So a start compares the digest of an encoder's answers with
these. Only if they differ does it ask the reference, which says on which text. A test computes the
digests again, and shows the new ones if the texts or a vocabulary have changed.
"""

from __future__ import annotations

from vocabularies.model.vocabulary import Vocabulary

DIGEST_BEGIN = slice(len("sha256:"), len("sha256:") + 16)
RECORDED = {
    "ce16cab9eb8f691b": "daa893d9e812d2a3940cdd824e2e8435bb63060ad9e014dcf770fefc0022906b",
    "7c17cec21060155b": "90e664f0803033ffe62eb660d6fed881ae5bd7c7666c6d7094f9dfea7450dc13",
    "307ae52a54a09914": "dbf3aca96224cd8fb4299edbff2d569d8d08342eab116411ac82800f431d8a53",
    "904834e7f27ff26d": "990b2b8d2d911943dc59f3a13eccfe0974aa53cc7d2c7815f943c970f0274edb",
    "a48032fffa79dd61": "ab63d2ae91f13b519e4d31530c70853ed05f769887f7c5bc2803fd75e2661047",
    "e24e3847c613d951": "b322f7ceb91abfcd5445f2f50e3347cf343d6f72c15a718c219a7e056b586902",
    "ab65dde361256e59": "0c79b9fc06f3d2d9c9cc17515313da4b60f0877adb821477c0f27e08c3e3829e",
    "585de098bb9019a8": "30fae63fa2ec531d9135231385807dbec831377777580e32ed9be8447e7e0902",
    "86845487dfb4f40d": "8040e9519f87b6040ef29faabb8ebea5aaa0440d5f5af2a4f43610329514af96",
    "f90ca980858bd2e1": "558254ec0d6b98e287c7e7520e7aee2d215d4a67196896ad36c2e44a9f1a897a",
    "73de5072d56cfb78": "70f3569978c0806e37ce5e6e67030bb228781a6e029a93d1cc5d55919299fd1d",
    "ddd722b6f411bc8d": "d2b2bbf90a375693bb003964cae1db8ae8e71d63fef286c1857e90c9d83f5e1c",
    "baefc94e53b407a6": "a8dbb4cdceb85a1ab2e89ef2229646d7c3d7a501f7283ab495b04ae97925951b",
    "11d2e6fc6af450a9": "1126307b155df7e9cd797a12b1101ba712ebb9109d19386591f11add177bd510",
    "75bbb97e0308af64": "2ea56e6018a60af5909aeb4f82c066449eab755828c19ea4553e9bae06149a90",
    "d7c2e8cf2d8000c7": "3a84cf607fe442219f2475e28d74caf873e4622b199249aec32431a554b0372a",
    "6c413aa387b3c11f": "3be4d34bb99a7721b5b603e843540ecec0de955ab3fb5e1e6a0b8278d44f21b4",
}
"""`selftest.digest_answers` of the reference, by the begin of the vocabulary's digest."""


def recorded_answers(vocabulary: Vocabulary) -> str:
    """Return the digest of the reference's answers for a vocabulary; "" if it is not built in."""
    return RECORDED.get(vocabulary.digest[DIGEST_BEGIN], "")
