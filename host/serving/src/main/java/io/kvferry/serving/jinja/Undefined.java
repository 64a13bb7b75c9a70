// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

/// What a missing variable, attribute or element evaluates to: prints as nothing, is false and
/// empty, and fails whatever else is done with it.
///
/// @param what is missing, for the error
record Undefined(String what) {
    TemplateException error() {
        return new TemplateException(what + " is undefined");
    }

    @Override
    public String toString() {
        return "";
    }
}
