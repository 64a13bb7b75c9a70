// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.harness;

import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.RequestView;
import io.kvferry.spi.kv.TransferParams;
import io.kvferry.spi.memory.BlockHash;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.tck.Mix;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/// A request in a [ConnectorHarness], as the test sees it. [#view] is what connectors see.
///
/// Threading: the test's thread.
public final class HarnessRequest {
    /// Where a request stands.
    public enum State {
        /// No blocks; may be looked up.
        WAITING,
        /// Has blocks; an asynchronous load is open.
        LOADING,
        /// Has blocks; may be scheduled.
        RUNNING,
        /// `finish` was called.
        FINISHED
    }

    private final String id;
    private final int promptTokens;
    private final String salt;
    private final TransferParams params;
    private final int blockTokens;
    private final CacheNamespace namespace;
    private final List<BlockHash> hashes = new ArrayList<>();
    private final View view = new View();
    private int[] tokens;
    private long[] chain = {};
    private boolean viewOpen = true;

    State state = State.WAITING;
    int[][] blocks = {};
    int computed;
    int attempt;
    boolean admitted;
    Optional<LoadAssignment> load = Optional.empty();
    Optional<Failure> loadFailure = Optional.empty();
    int loadedTokens;

    /// Its blocks hold anything: the harness has overwritten them.
    boolean unchecked;

    /// The harness has spoilt its load.
    boolean broken;

    public HarnessRequest(
            String id,
            int[] prompt,
            String salt,
            TransferParams params,
            HarnessShape shape,
            CacheNamespace namespace) {
        this.id = id;
        this.tokens = prompt.clone();
        this.promptTokens = prompt.length;
        this.salt = salt;
        this.params = params;
        this.blockTokens = shape.blockTokens();
        this.namespace = namespace;
        rehash();
    }

    public String id() {
        return id;
    }

    public State state() {
        return state;
    }

    public int tokenCount() {
        return tokens.length;
    }

    /// Tokens whose KV is in the blocks.
    public int computed() {
        return computed;
    }

    /// Tokens that the last load delivered.
    public int loadedTokens() {
        return loadedTokens;
    }

    /// Why the last load failed, if it did.
    public Optional<Failure> loadFailure() {
        return loadFailure;
    }

    /// Block ids of a group.
    public int[] blocks(int group) {
        return blocks.length == 0 ? new int[0] : blocks[group].clone();
    }

    public List<BlockHash> hashes() {
        return List.copyOf(hashes);
    }

    /// As the connector sees it; unusable once the request is finished.
    public RequestView view() {
        return view;
    }

    /// Adds a generated token.
    void append(int token) {
        tokens = Arrays.copyOf(tokens, tokens.length + 1);
        tokens[tokens.length - 1] = token;
        rehash();
    }

    void closeView() {
        viewOpen = false;
    }

    /// A number that stands for the tokens up to and including `position`, the salt and the model.
    long chain(int position) {
        return chain[position];
    }

    private void rehash() {
        int from = chain.length;
        chain = Arrays.copyOf(chain, tokens.length);
        for (int i = from; i < tokens.length; i++) {
            long before = i == 0 ? seed() : chain[i - 1];
            chain[i] = Mix.mix(before * 31 + tokens[i] + 0x9e37_79b9_7f4a_7c15L);
        }
        while ((hashes.size() + 1) * blockTokens <= tokens.length) {
            hashes.add(hash(hashes.size()));
        }
    }

    private long seed() {
        return Mix.mix(ByteBuffer.wrap(namespace.contentDigest()).getLong() ^ salt.hashCode());
    }

    private BlockHash hash(int block) {
        try {
            var sha = MessageDigest.getInstance("SHA-256");
            sha.update(block == 0 ? namespace.contentDigest() : hashes.get(block - 1).toBytes());
            if (block == 0) {
                sha.update(salt.getBytes(StandardCharsets.UTF_8));
            }
            var buffer = ByteBuffer.allocate(4 * blockTokens);
            for (int i = 0; i < blockTokens; i++) {
                buffer.putInt(tokens[block * blockTokens + i]);
            }
            return BlockHash.of(sha.digest(buffer.array()), 0);
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError("every JDK has SHA-256", e);
        }
    }

    @Override
    public String toString() {
        return id + "[" + state + ", " + computed + "/" + tokens.length + "]";
    }

    /// Valid from `onRequest` until `finish` has returned.
    private final class View implements RequestView {
        private void use() {
            if (!viewOpen) {
                throw new AssertionError(
                        "the view of request " + id + " was used after finish() had returned");
            }
        }

        @Override
        public String id() {
            use();
            return id;
        }

        @Override
        public int tokenCount() {
            use();
            return tokens.length;
        }

        @Override
        public int promptTokenCount() {
            use();
            return promptTokens;
        }

        @Override
        public int token(int position) {
            use();
            return tokens[position];
        }

        @Override
        public int blockHashCount() {
            use();
            return hashes.size();
        }

        @Override
        public BlockHash blockHash(int block) {
            use();
            return hashes.get(block);
        }

        @Override
        public int computedTokenCount() {
            use();
            return computed;
        }

        @Override
        public TransferParams params() {
            use();
            return params;
        }

        @Override
        public String cacheSalt() {
            use();
            return salt;
        }

        @Override
        public int attempt() {
            use();
            return attempt;
        }
    }
}
