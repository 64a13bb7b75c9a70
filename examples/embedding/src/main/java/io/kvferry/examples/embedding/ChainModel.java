// SPDX-License-Identifier: Apache-2.0
package io.kvferry.examples.embedding;

import io.kvferry.engine.model.Model;
import io.kvferry.engine.model.ModelInfo;
import io.kvferry.engine.model.ModelRunner;
import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.engine.model.RunnerContext;
import io.kvferry.engine.model.Tokenizer;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;

import java.nio.charset.StandardCharsets;
import java.util.List;

/// The properties of the model of [ChainRunner]. The engine sizes its cache by them, and includes
/// those that identify the model (digest, runner, dtype, layout version) in every block hash.
///
/// A provider that a jar names in `META-INF/services/io.kvferry.engine.model.ModelRunnerProvider`
/// is also found by `kvferry serve --runner chain`.
public final class ChainModel implements Model {
    static final int LAYERS = 3;
    static final int VOCABULARY = 257; // a byte is token byte + 1; 0 ends a generation

    /// Names the runner and opens the model.
    public static final class Provider implements ModelRunnerProvider {
        @Override
        public String name() {
            return "chain";
        }

        @Override
        public String description() {
            return "a hash chain in place of a model (example)";
        }

        @Override
        public SpiVersion.Range spiVersions() {
            return SpiVersion.Range.from(1, 0);
        }

        @Override
        public OptionSchema options() {
            return OptionSchema.NONE;
        }

        @Override
        public Model open(ModelSource source) {
            return new ChainModel();
        }
    }

    @Override
    public ModelInfo info() {
        return new ModelInfo(
                "chain",
                "chain-weights-1", // a real model: a digest of its weights
                "chain-runner-1",
                ModelInfo.llamaLayers(LAYERS),
                1, // KV heads
                4, // elements of a head: K and V of a token are 2 * 4 * 4 = 32 bytes in each layer
                DType.FLOAT32,
                KvLayout.LBNHC,
                1,
                VOCABULARY,
                4096,
                List.of(0),
                0);
    }

    @Override
    public Tokenizer tokenizer() {
        return new Bytes();
    }

    @Override
    public ModelRunner openRunner(RunnerContext context) {
        return new ChainRunner(context);
    }

    @Override
    public void close() {}

    /// Bytes as tokens.
    private static final class Bytes implements Tokenizer {
        @Override
        public int[] encode(String text) {
            var bytes = text.getBytes(StandardCharsets.ISO_8859_1);
            var tokens = new int[bytes.length];
            for (int i = 0; i < bytes.length; i++) {
                tokens[i] = (bytes[i] & 0xff) + 1;
            }
            return tokens;
        }

        @Override
        public String decode(int[] tokens) {
            var text = new StringBuilder();
            for (int token : tokens) {
                text.append(token == 0 ? "" : Character.toString(token - 1));
            }
            return text.toString();
        }

        @Override
        public int[] encodeChat(List<ChatMessage> messages) {
            var text = new StringBuilder();
            messages.forEach(m -> text.append(m.role()).append(": ").append(m.content()));
            return encode(text.toString());
        }

        @Override
        public StreamDecoder streamDecoder() {
            return new StreamDecoder() {
                @Override
                public String append(int token) {
                    return decode(new int[] {token});
                }

                @Override
                public String flush() {
                    return "";
                }
            };
        }
    }
}
