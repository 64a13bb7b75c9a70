// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;

/// Identity of a cache: two caches must share it before a block of one may be used by the other.
/// [#contentDigest] is the root of every block hash chain: equal for engines that compute the same
/// KV, however they lay it out and split it over ranks. [#hex] also covers layout and ranks, and
/// names the folder or key prefix under which bytes are stored.
///
/// @param model identity of weights and tokenizer, best a content digest; a path alone does not
///   tell two models apart
/// @param runner name and version of what computes the KV, since engines differ in RoPE form and
///   rounding
/// @param layoutVersion changes whenever the bytes within a block change their meaning
/// @param tpSize ranks over which each block is split
/// @param salt the tenant's salt, empty for none; a request may add its own
public record CacheNamespace(
        String model,
        String runner,
        DType dtype,
        KvLayout layout,
        int layoutVersion,
        int blockTokens,
        int tpSize,
        int ppSize,
        String salt) {
    /// Of what the KV means: model, runner, dtype, block size, salt.
    public byte[] contentDigest() {
        return sha256(
                List.of(
                        "kvferry-content-1",
                        model,
                        runner,
                        dtype.label(),
                        Integer.toString(blockTokens),
                        salt));
    }

    private byte[] digest() {
        return sha256(
                List.of(
                        "kvferry-namespace-1",
                        model,
                        runner,
                        dtype.label(),
                        layout.name(),
                        Integer.toString(layoutVersion),
                        Integer.toString(blockTokens),
                        Integer.toString(tpSize),
                        Integer.toString(ppSize),
                        salt));
    }

    /// Each field with its length, so that no two lists collide by concatenation.
    private static byte[] sha256(List<String> fields) {
        try {
            var sha = MessageDigest.getInstance("SHA-256");
            for (var field : fields) {
                var bytes = field.getBytes(StandardCharsets.UTF_8);
                sha.update(ByteBuffer.allocate(4).putInt(bytes.length).flip());
                sha.update(bytes);
            }
            return sha.digest();
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError("every JDK has SHA-256", e);
        }
    }

    /// A digest of all fields, as 64 lower-case hex digits: what the bytes of a stored block are.
    public String hex() {
        return HexFormat.of().formatHex(digest());
    }
}
