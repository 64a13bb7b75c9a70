// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector.keys;

import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.memory.BlockHash;

import org.jspecify.annotations.Nullable;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.List;

/// The chain of block hashes of vLLM 0.33.0 for one request: SHA-256 over the hash of the block
/// before, the block's token ids and `None`, written as Python's pickle (protocol 5) or as
/// canonical CBOR does; the first block follows the hash of a seed.
///
/// Blocks whose hash covers more than tokens have no name here: those of a request with a salt, and
/// those from the first multimodal item on.
///
/// Threading: the scheduler thread.
public final class VllmHashes implements BlockHashes {
    /// What vLLM hashes where `PYTHONHASHSEED` is not set.
    static final String SEED = "vllm-none-hash";

    /// Longer ones do not fit into one frame of a pickle.
    static final int MOST_TOKENS = 8192;

    /// What is hashed, and how it is written.
    public enum Algorithm {
        SHA256("sha256"),
        SHA256_CBOR("sha256_cbor");

        private final String label;

        Algorithm(String label) {
            this.label = label;
        }

        /// vLLM's name of it.
        public String label() {
            return label;
        }

        public static Algorithm of(String label) {
            for (Algorithm algorithm : values()) {
                if (algorithm.label.equals(label)) {
                    return algorithm;
                }
            }
            throw new IllegalArgumentException("no hash algorithm " + label);
        }
    }

    private final Algorithm algorithm;
    private final int blockTokens;
    private final byte[] root;
    private final List<BlockHash> chain = new ArrayList<>();
    private final MessageDigest sha = sha256();
    private boolean ended;

    /// @param root as of [#root]
    /// @param blockTokens 1 to [#MOST_TOKENS]
    public VllmHashes(Algorithm algorithm, byte[] root, int blockTokens) {
        this.algorithm = algorithm;
        this.root = root;
        this.blockTokens = blockTokens;
    }

    /// The hash before the first block.
    ///
    /// @param seed value of `PYTHONHASHSEED`; null or empty where it is not set
    public static byte[] root(Algorithm algorithm, @Nullable String seed) {
        byte[] text =
                (seed == null || seed.isEmpty() ? SEED : seed).getBytes(StandardCharsets.UTF_8);
        var out = ByteBuffer.allocate(text.length + 32);
        switch (algorithm) {
            case SHA256 -> {
                int head = text.length < 256 ? 2 : 5;
                pickleHead(out, head + text.length + 2);
                if (text.length < 256) {
                    out.put((byte) 0x8c).put((byte) text.length); // SHORT_BINUNICODE
                } else {
                    out.put((byte) 'X').putInt(text.length); // BINUNICODE
                }
                out.put(text).put((byte) 0x94).put((byte) '.'); // MEMOIZE, STOP
            }
            case SHA256_CBOR -> {
                cborHead(out, 3, text.length);
                out.put(text);
            }
        }
        return sha256().digest(written(out));
    }

    @Override
    public int count(RequestView request) {
        if (!request.cacheSalt().isEmpty()) {
            return 0;
        }
        int full = Math.min(request.blockHashCount(), request.tokenCount() / blockTokens);
        while (!ended && chain.size() < full) {
            if (request.extraKeys(chain.size()).isEmpty()) {
                chain.add(next(request));
            } else {
                ended = true;
            }
        }
        return Math.min(full, chain.size());
    }

    @Override
    public BlockHash of(RequestView request, int block) {
        if (block >= chain.size() && block >= count(request)) {
            throw new IndexOutOfBoundsException("block " + block + " has no hash of vLLM");
        }
        return chain.get(block);
    }

    private BlockHash next(RequestView request) {
        byte[] parent = chain.isEmpty() ? root : chain.getLast().toBytes();
        int first = chain.size() * blockTokens;
        var out = ByteBuffer.allocate(64 + 5 * blockTokens);
        switch (algorithm) {
            case SHA256 -> pickle(out, parent, request, first);
            case SHA256_CBOR -> cbor(out, parent, request, first);
        }
        return BlockHash.of(sha.digest(written(out)), 0);
    }

    private void pickle(ByteBuffer out, byte[] parent, RequestView request, int first) {
        pickleHead(out, 0); // the length is known at the end
        int begin = out.position();
        out.put((byte) 'C').put((byte) parent.length).put(parent); // SHORT_BINBYTES
        out.put((byte) 0x94); // MEMOIZE
        boolean marked = blockTokens > 3;
        if (marked) {
            out.put((byte) '('); // MARK
        }
        for (int i = 0; i < blockTokens; i++) {
            int token = request.token(first + i);
            if (token >= 0 && token < 1 << 8) {
                out.put((byte) 'K').put((byte) token); // BININT1
            } else if (token >= 0 && token < 1 << 16) {
                out.put((byte) 'M').putShort((short) token); // BININT2
            } else {
                out.put((byte) 'J').putInt(token); // BININT
            }
        }
        out.put((byte) (marked ? 't' : 0x84 + blockTokens)); // TUPLE, or TUPLE1 to TUPLE3
        out.put((byte) 0x94).put((byte) 'N').put((byte) 0x87); // MEMOIZE, NONE, TUPLE3
        out.put((byte) 0x94).put((byte) '.'); // MEMOIZE, STOP
        out.putLong(begin - Long.BYTES, out.position() - begin);
    }

    /// PROTO 5, and a FRAME of so many bytes; pickles are little-endian.
    private static void pickleHead(ByteBuffer out, long frame) {
        out.order(ByteOrder.LITTLE_ENDIAN);
        out.put((byte) 0x80).put((byte) 5).put((byte) 0x95).putLong(frame);
    }

    private void cbor(ByteBuffer out, byte[] parent, RequestView request, int first) {
        cborHead(out, 4, 3);
        cborHead(out, 2, parent.length);
        out.put(parent);
        cborHead(out, 4, blockTokens);
        for (int i = 0; i < blockTokens; i++) {
            int token = request.token(first + i);
            cborHead(out, token < 0 ? 1 : 0, token < 0 ? ~token : token);
        }
        out.put((byte) 0xf6); // null
    }

    /// Kind and length, or value, in the fewest bytes.
    private static void cborHead(ByteBuffer out, int major, int value) {
        int kind = major << 5;
        if (value < 24) {
            out.put((byte) (kind | value));
        } else if (value < 1 << 8) {
            out.put((byte) (kind | 24)).put((byte) value);
        } else if (value < 1 << 16) {
            out.put((byte) (kind | 25)).putShort((short) value);
        } else {
            out.put((byte) (kind | 26)).putInt(value);
        }
    }

    private static byte[] written(ByteBuffer out) {
        var bytes = new byte[out.position()];
        out.get(0, bytes);
        return bytes;
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every JDK has SHA-256", e);
        }
    }
}
