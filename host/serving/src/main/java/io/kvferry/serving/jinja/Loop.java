// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.List;
import java.util.Objects;

/// The `loop` of a for statement.
final class Loop {
    private final List<Object> elements;
    private int index;
    private Object lastSeen = new Undefined("nothing");

    Loop(List<Object> elements) {
        this.elements = elements;
    }

    void moveTo(int position) {
        index = position;
    }

    Object get(String name) {
        int n = elements.size();
        return switch (name) {
            case "index" -> index + 1L;
            case "index0" -> (long) index;
            case "revindex" -> (long) n - index;
            case "revindex0" -> n - index - 1L;
            case "first" -> index == 0;
            case "last" -> index == n - 1;
            case "length" -> (long) n;
            case "depth" -> 1L; // grows in recursive loops only
            case "depth0" -> 0L;
            case "previtem" ->
                    index == 0 ? new Undefined("the item before the first") : element(index - 1);
            case "nextitem" ->
                    index == n - 1 ? new Undefined("the item after the last") : element(index + 1);
            case "cycle" ->
                    (Callee)
                            (arguments, _) -> {
                                if (arguments.isEmpty()) {
                                    throw new TemplateException("no items for cycling given");
                                }
                                return arguments.get(index % arguments.size());
                            };
            case "changed" ->
                    (Callee)
                            (arguments, _) -> {
                                boolean same = lastSeen.equals(arguments);
                                lastSeen = arguments;
                                return !same;
                            };
            default -> new Undefined("loop." + name);
        };
    }

    private Object element(int at) {
        return Objects.requireNonNull(elements.get(at), "templates know no null");
    }
}
