import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    files: ["src/headwise/**/*.js"],
    languageOptions: {ecmaVersion: 2024, sourceType: "module", globals: globals.browser},
    rules: {
      eqeqeq: "error",
      "no-var": "error",
      "prefer-const": "error",
      "no-shadow": "off",
      "no-implicit-globals": "error",
      "no-restricted-properties": ["error", {property: "innerHTML", message: "Text stays text: use textContent."}],
      "no-restricted-imports": ["error", {patterns: [{group: ["./*", "../*"], message: "Import by bare name: headwise/NAME."}]}],
    },
  },
  {files: ["tests/js/**/*.js"], languageOptions: {ecmaVersion: 2024, sourceType: "module", globals: {...globals.node, ...globals.browser}}},
];
