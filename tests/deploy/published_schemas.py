# SPDX-License-Identifier: Apache-2.0
"""Reads JSON schemas of custom resources from the models that their projects publish: KServe's SDK,
and classes generated from the Prometheus operator's CRDs. The packages are parsed, not imported
(tests/deploy/schemas.txt)."""

import ast
import importlib.metadata
import re

import kubernetes_validate.utils
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

# Names of KServe's SDK that differ from "io.k8s.api.core.v1." and the rest of the name.
CORE_NAMES = {
    "V1ObjectMeta": "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    "V1ListMeta": "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    "ResourceQuantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "K8sIoApiAppsV1DeploymentStrategy": "io.k8s.api.apps.v1.DeploymentStrategy",
}
PRIMITIVES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


class PublishedSchemas:
    """Schemas by the name of their class; embedded core types are those of kubernetes-validate."""

    def __init__(self):
        version = kubernetes_validate.utils.all_versions()[-1]
        core = kubernetes_validate.utils.schema_contents(
            f"kubernetes-json-schema/v{version}-local-strict/_definitions.json", version
        )
        self._core = core["$defs"]
        self._registry = Registry().with_resource(core["$id"], Resource.from_contents(core))
        self._core_id = core["$id"]
        self._definitions = {}

    def read_openapi_generator(self, package, folder):
        """Classes with `openapi_types` and `attribute_map`."""
        for file in sorted(_located(package, folder).glob("*.py")):
            for cls in _classes(file):
                fields = {n.targets[0].id: n.value for n in cls.body if isinstance(n, ast.Assign)}
                if "openapi_types" not in fields:
                    continue
                types, names = ast.literal_eval(fields["openapi_types"]), ast.literal_eval(fields["attribute_map"])
                text = ast.unparse(cls)
                required = re.findall(r"Invalid value for `(\w+)`, must not be `None`", text)
                self._add(cls.name, {names[f]: self._openapi_type(t) for f, t in types.items()},
                          [names[f] for f in dict.fromkeys(required)])

    def read_pydantic(self, package, file):
        """Classes with annotated fields."""
        for cls in _classes(_located(package, file)):
            properties, required = {}, []
            for field in cls.body:
                if isinstance(field, ast.AnnAssign):
                    name, schema = self._annotated(field.target.id, field.annotation)
                    properties[name] = schema
                    if field.value is None:
                        required.append(name)
            self._add(cls.name, properties, required)

    def errors(self, name, document):
        """What is wrong with a document, one line each."""
        schema = {"$ref": f"#/$defs/{name}", "$defs": self._definitions}
        found = Draft202012Validator(schema, registry=self._registry).iter_errors(document)
        return [f"{e.json_path}: {e.message}" for e in found]

    def _add(self, name, properties, required):
        self._definitions[name] = {
            "type": "object", "properties": properties, "required": required, "additionalProperties": False
        }

    def _openapi_type(self, text):
        if text in PRIMITIVES:
            return {"type": PRIMITIVES[text]}
        if match := re.fullmatch(r"list\[(.*)\]", text):
            return {"type": "array", "items": self._openapi_type(match[1])}
        if match := re.fullmatch(r"dict\(str, (.*)\)", text):
            return {"type": "object", "additionalProperties": self._openapi_type(match[1])}
        core = CORE_NAMES.get(text, f"io.k8s.api.core.v1.{text[2:]}")
        if core in self._core:
            return {"$ref": f"{self._core_id}#/$defs/{core}"}
        if re.match(r"V1(alpha1|beta1)", text):
            return {"$ref": f"#/$defs/{text}"}
        return {}  # "object", times, and types of Knative's status

    def _annotated(self, name, annotation):
        """The field's name on the wire, and its schema."""
        schema_of = annotation
        extra = {}
        if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
            schema_of, field = annotation.slice.elts[0], annotation.slice.elts[1]
            options = {k.arg: ast.literal_eval(k.value) for k in field.keywords if isinstance(k.value, ast.Constant)}
            name = options.get("alias", name)
            keywords = {"pattern": "pattern", "min_length": "minLength", "ge": "minimum", "le": "maximum"}
            extra = {keywords[k]: v for k, v in options.items() if k in keywords}
        return name, {**self._python_type(schema_of), **extra}

    def _python_type(self, node):
        text = ast.unparse(node)
        if text in PRIMITIVES:
            return {"type": PRIMITIVES[text]}
        if text.endswith("ObjectMeta"):
            return {"$ref": f"{self._core_id}#/$defs/{CORE_NAMES['V1ObjectMeta']}"}
        if isinstance(node, ast.Name) and text != "Any":
            return {"$ref": f"#/$defs/{text}"}
        if isinstance(node, ast.Subscript):
            inner = node.slice
            match ast.unparse(node.value):
                case "Optional":
                    return self._python_type(inner)
                case "List":
                    return {"type": "array", "items": self._python_type(inner)}
                case "Dict":
                    return {"type": "object", "additionalProperties": self._python_type(inner.elts[1])}
                case "Literal":
                    return {"enum": [ast.literal_eval(e) for e in getattr(inner, "elts", [inner])]}
        return {}  # unions of patterns, and what is not constrained


def _located(package, path):
    return importlib.metadata.distribution(package).locate_file(path)


def _classes(file):
    module = ast.parse(file.read_text(encoding="utf-8"))
    return [node for node in module.body if isinstance(node, ast.ClassDef)]
