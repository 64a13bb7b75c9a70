// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.spi.kv.TransferParams;

import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/// Typed fields of a request's JSON body; null counts as absent, another type is a 400 that names
/// the field.
final class BodyFields {
    private BodyFields() {}

    static TransferParams params(ObjectNode body, String field) {
        var value = body.path(field);
        if (isAbsent(value)) {
            return TransferParams.EMPTY;
        }
        if (value instanceof ObjectNode object) {
            return new TransferParams(Json.toMap(object));
        }
        throw HttpProblem.badRequest(field, field + " must be an object");
    }

    static boolean isAbsent(JsonNode value) {
        return value.isMissingNode() || value.isNull();
    }

    static boolean flag(ObjectNode body, String field) {
        return flag(body, field, false);
    }

    static boolean flag(ObjectNode body, String field, boolean absent) {
        var value = body.path(field);
        if (isAbsent(value)) {
            return absent;
        }
        if (!value.isBoolean()) {
            throw HttpProblem.badRequest(field, field + " must be true or false");
        }
        return value.booleanValue();
    }

    static String text(ObjectNode body, String field, String absent) {
        var value = body.path(field);
        if (isAbsent(value)) {
            return absent;
        }
        if (!value.isString()) {
            throw HttpProblem.badRequest(field, field + " must be a string");
        }
        return value.stringValue();
    }

    static long integer(ObjectNode body, String field, long absent) {
        var value = body.path(field);
        if (isAbsent(value)) {
            return absent;
        }
        if (!value.isIntegralNumber() || !value.canConvertToLong()) {
            throw HttpProblem.badRequest(field, field + " must be a whole number");
        }
        return value.longValue();
    }

    static double number(ObjectNode body, String field, double absent) {
        var value = body.path(field);
        if (isAbsent(value)) {
            return absent;
        }
        if (!value.isNumber()) {
            throw HttpProblem.badRequest(field, field + " must be a number");
        }
        return value.doubleValue();
    }
}
