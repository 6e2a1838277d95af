// Copy buttons: they appear only with this script; without it, the text can be selected.
for (const button of document.querySelectorAll("button[data-copy]")) {
  const code = button.parentElement.querySelector("code");
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code); // without HTTPS there is no clipboard API
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
// Forms whose answer takes a while say so, until they are sent or, by the back button, shown again.
for (const form of document.querySelectorAll("form[data-wait]")) {
  form.addEventListener("submit", ({ submitter }) => {
    const text = submitter.textContent;
    const wait = (waits) => {
      form.setAttribute("aria-busy", waits);
      submitter.textContent = waits ? form.dataset.wait : text;
      for (const button of form.querySelectorAll("button")) button.disabled = waits;
    };
    setTimeout(wait, 0, true); // after the button's value was read
    addEventListener("pageshow", () => wait(false), { once: true });
  });
}
