// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.storeconnector.keys.VllmHashes;
import io.kvferry.backend.mooncake.storeconnector.keys.VllmHashes.Algorithm;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/// Against hashes that vLLM 0.33.0 was seen to use, and, for other sizes of numbers and tuples,
/// against Python's `hashlib.sha256(pickle.dumps((parent, tokens, None), protocol=5))`.
class VllmHashesTest {
    private static final byte[] ROOT = VllmHashes.root(Algorithm.SHA256, null);

    private static List<String> chain(Algorithm algorithm, TokensRequest request) {
        var hashes =
                new VllmHashes(algorithm, VllmHashes.root(algorithm, null), TokensRequest.BLOCK);
        return IntStream.range(0, hashes.count(request))
                .mapToObj(block -> hashes.of(request, block).hex())
                .toList();
    }

    private static String one(List<Integer> tokens) {
        var request = new TokensRequest("r", padded(tokens), -1, "");
        return new VllmHashes(Algorithm.SHA256, ROOT, tokens.size()).of(request, 0).hex();
    }

    /// So that the engine has a hash, whatever the block size here is.
    private static List<Integer> padded(List<Integer> tokens) {
        return Stream.concat(tokens.stream(), Stream.generate(() -> 1).limit(16)).toList();
    }

    @Test
    void rootsAreThoseOfVllm() {
        assertThat(HexFormat.of().formatHex(ROOT))
                .isEqualTo("066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198");
        assertThat(HexFormat.of().formatHex(VllmHashes.root(Algorithm.SHA256_CBOR, null)))
                .isEqualTo("9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0");
        assertThat(HexFormat.of().formatHex(VllmHashes.root(Algorithm.SHA256, "0")))
                .isEqualTo("1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c");
        assertThat(HexFormat.of().formatHex(VllmHashes.root(Algorithm.SHA256, "x".repeat(300))))
                .isEqualTo("796f623498b3224e9ffa6f299974768d44172394206833986218bec606c32794");
    }

    @Test
    void chainsAreThoseOfVllm() {
        assertThat(chain(Algorithm.SHA256, TokensRequest.of("r", 0, 37)))
                .containsExactly(
                        "fe8fa5dda3210d0ca2031e37cbe3b001186773cd1c710beb2d45fcb51d434798",
                        "8be7aaa33831156d316f1f463ae57e643deb63f42e633e2d631df88815cc4629");
        assertThat(chain(Algorithm.SHA256_CBOR, TokensRequest.of("r", 0, 16)))
                .containsExactly(
                        "dc918a88b139e5afe60b88eda27508d4aee16c10fdc354791efea06206ac0749");
    }

    @Test
    void tokensAndTuplesOfEverySizeAreWrittenAsPythonDoes() {
        var wide =
                Stream.concat(
                                Stream.of(255, 256, 65_535, 65_536, 128_255, Integer.MAX_VALUE),
                                IntStream.range(0, 10).boxed())
                        .toList();
        assertThat(one(wide))
                .isEqualTo("adb808ab349a23855d6cd9e080452a30aacda2d393798ec0be8f544d34ec685b");
        assertThat(one(List.of(5)))
                .isEqualTo("92b6415c9587c9e2bd70818b16406dc713e7cc19ffa91be533188ee94f328006");
        assertThat(one(List.of(5, 70_000)))
                .isEqualTo("8e5104f722480337f44e423cf9f95ac743611c9b0605c9b40fbaf7d471f9a217");
        assertThat(one(List.of(5, 6, 7)))
                .isEqualTo("85c7cf02c5bbc9f7eb879223d4b43e4bb0981e1f78eb40c21a1eb4abfa47f538");
    }

    @ParameterizedTest
    @CsvSource({"sha256", "sha256_cbor"})
    void oneBlockChangesAllThatFollow(String algorithm) {
        var one = chain(Algorithm.of(algorithm), TokensRequest.of("r", 0, 64));
        var tokens = new ArrayList<>(TokensRequest.of("r", 0, 64).tokens());
        tokens.set(20, 70_000);
        var other = chain(Algorithm.of(algorithm), new TokensRequest("r", tokens, -1, ""));
        assertThat(other.getFirst()).isEqualTo(one.getFirst());
        assertThat(other.subList(1, 4)).doesNotContainAnyElementsOf(one);
    }

    /// Their hashes would cover more than tokens, and kvferry does not know in which form.
    @Test
    void blocksWithMoreThanTokensHaveNoName() {
        var tokens = TokensRequest.of("r", 0, 64).tokens();
        assertThat(chain(Algorithm.SHA256, new TokensRequest("r", tokens, 2, ""))).hasSize(2);
        assertThat(chain(Algorithm.SHA256, new TokensRequest("r", tokens, -1, "salt"))).isEmpty();
    }
}
