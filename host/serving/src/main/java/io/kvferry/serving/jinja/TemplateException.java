// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

/// A template that cannot be parsed or rendered, or that refuses its input.
public final class TemplateException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    public TemplateException(String message) {
        super(message);
    }

    /// For a part of Jinja that this package does not support.
    static TemplateException unsupported(String what) {
        return new TemplateException(what + " is not supported in chat templates");
    }
}
