// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.stream;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

class TokenSequenceTest {
    @Test
    void keepsPromptAndGeneratedTokens() {
        for (int prompt : new int[] {1, 255, 256, 1000}) {
            var given = new int[prompt];
            given[prompt - 1] = 7;
            var sequence = new TokenSequence(given);
            for (int i = 0; i < 3000; i++) {
                assertThat(sequence.count()).isEqualTo(prompt + i);
                sequence.append(10 + i);
            }
            assertThat(sequence.get(prompt - 1)).isEqualTo(7);
            for (int i = 0; i < 3000; i++) {
                assertThat(sequence.get(prompt + i)).isEqualTo(10 + i);
            }
            for (int most : new int[] {0, 1, 255, 256, 257, 3000}) {
                var copy = sequence.generated(most);
                assertThat(copy).hasSize(most);
                for (int i = 0; i < most; i++) {
                    assertThat(copy[i]).isEqualTo(10 + i);
                }
            }
        }
    }

    /// A reader takes what it has been told of while more is appended.
    @Test
    void showsReadersWhatTheyHaveBeenToldOf() throws InterruptedException {
        var sequence = new TokenSequence(new int[] {1});
        var told = new AtomicInteger();
        var wrong = new AtomicReference<>("");
        int all = 200_000;
        var reader =
                Thread.ofPlatform()
                        .start(() -> {
                            int read = 0;
                            while (read < all) {
                                for (int upTo = told.get(); read < upTo; read++) {
                                    if (sequence.get(1 + read) != 5 + read) {
                                        wrong.set("token " + read);
                                    }
                                }
                            }
                        });
        for (int i = 0; i < all; i++) {
            sequence.append(5 + i);
            told.set(i + 1);
        }
        reader.join(60_000);
        assertThat(reader.isAlive()).isFalse();
        assertThat(wrong.get()).isEmpty();
    }
}
