// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.List;

class OpeningPartsTest {
    private final List<String> closed = new ArrayList<>();

    @Test
    void whatWasOpenedIsClosedInReverseOrderWhenTheRestIsNot() {
        assertThatThrownBy(
                        () -> {
                            try (var parts = new OpeningParts()) {
                                parts.add("first", closed::add);
                                parts.add(
                                        "second",
                                        _ -> {
                                            throw new IllegalStateException("says the test");
                                        });
                                parts.add("third", closed::add);
                                throw new OutOfMemoryError("no thread, says the test");
                            }
                        })
                .isInstanceOf(OutOfMemoryError.class);
        assertThat(closed).containsExactly("third", "first");
    }

    @Test
    void whatIsKeptStaysOpen() {
        try (var parts = new OpeningParts()) {
            assertThat(parts.add("first", closed::add)).isEqualTo("first");
            parts.keep();
        }
        assertThat(closed).isEmpty();
    }
}
