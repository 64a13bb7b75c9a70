// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

/// Text that is being rendered, of bounded length.
final class Output {
    private final StringBuilder text = new StringBuilder();
    private final int most;

    /// @param most characters
    Output(int most) {
        this.most = most;
    }

    /// For a part that is rendered apart: a macro, a block that is assigned.
    Output part() {
        return new Output(most);
    }

    void append(String piece) {
        if (piece.length() > most - text.length()) {
            throw new TemplateException("the text is longer than " + most + " characters");
        }
        text.append(piece);
    }

    String text() {
        return text.toString();
    }
}
