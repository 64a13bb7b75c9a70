// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.hash;

import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.DigestException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.function.IntUnaryOperator;

/// Computes the hash chain of [BlockHash]:
///
/// ```
/// root       = SHA-256("kvferry-blocks-1" | CacheNamespace.contentDigest (32 bytes) | salt as UTF-8)
/// hash(b)    = SHA-256(hash(b - 1) or root | token ids of the block, 4 bytes each, little-endian | extra)
/// ```
///
/// where `extra` is empty for text, and names the multimodal items under the block's placeholder
/// tokens otherwise.
///
/// Threading: confined; make one per thread. Allocates nothing per block.
public final class BlockHasher {
    private static final VarHandle INT =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
    private static final byte[] DOMAIN = "kvferry-blocks-1".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] NO_EXTRA = new byte[0];

    private final MessageDigest sha;
    private final int blockTokens;
    private final byte[] namespace;

    /// The hash before a block, then its tokens.
    private final byte[] input;

    private final byte[] output = new byte[BlockHash.BYTES];

    public BlockHasher(byte[] contentDigest, int blockTokens) {
        this.namespace = contentDigest.clone();
        this.blockTokens = blockTokens;
        this.input = new byte[BlockHash.BYTES + Math.multiplyExact(4, blockTokens)];
        try {
            this.sha = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError("every JDK has SHA-256", e);
        }
    }

    public static BlockHasher of(CacheNamespace namespace) {
        return new BlockHasher(namespace.contentDigest(), namespace.blockTokens());
    }

    /// The hash that stands before the first block of a request with this salt.
    public BlockHash root(String salt) {
        sha.update(DOMAIN);
        sha.update(namespace);
        sha.update(salt.getBytes(StandardCharsets.UTF_8));
        finish();
        return BlockHash.of(output, 0);
    }

    /// Appends the hashes of blocks `chain.count()` to `blocks` (exclusive) to the chain.
    ///
    /// @param tokens token ids from position 0 on
    public void extend(HashChain chain, int[] tokens, int blocks, Extra extra) {
        for (int block = chain.count(); block < blocks; block++) {
            for (int i = 0, at = block * blockTokens; i < blockTokens; i++) {
                INT.set(input, BlockHash.BYTES + 4 * i, tokens[at + i]);
            }
            append(chain, extra.of(block));
        }
    }

    /// As [#extend(HashChain, int[], int, Extra)], for tokens that do not lie in one array.
    ///
    /// @param tokens the token id at a position
    public void extend(HashChain chain, IntUnaryOperator tokens, int blocks, Extra extra) {
        for (int block = chain.count(); block < blocks; block++) {
            for (int i = 0, at = block * blockTokens; i < blockTokens; i++) {
                INT.set(input, BlockHash.BYTES + 4 * i, tokens.applyAsInt(at + i));
            }
            append(chain, extra.of(block));
        }
    }

    /// @param extra what stands behind the tokens in `input`
    private void append(HashChain chain, byte[] extra) {
        chain.copyLast(input);
        sha.update(input);
        sha.update(extra);
        finish();
        chain.append(output);
    }

    private void finish() {
        try {
            sha.digest(output, 0, output.length);
        } catch (DigestException e) {
            throw new AssertionError("32 bytes are enough for SHA-256", e);
        }
    }

    /// What beside the token ids decides about the KV of a block.
    @FunctionalInterface
    public interface Extra {
        /// Text only.
        Extra NONE = _ -> NO_EXTRA;

        byte[] of(int block);
    }

    @Override
    public String toString() {
        return "BlockHasher["
                + blockTokens
                + " tokens, namespace "
                + Arrays.hashCode(namespace)
                + "]";
    }
}
