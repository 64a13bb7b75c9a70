// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

/// The value of a missing variable, attribute or element: prints as nothing, is false and empty,
/// and fails in every other use.
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
